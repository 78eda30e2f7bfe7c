"""Forty calls at once by threads. Says when its connections are open, and begins when it reads a line."""

from concurrent.futures import ThreadPoolExecutor

from redis_py import Pool, throttle

pool = Pool()
print('open', flush=True)
input()
with ThreadPoolExecutor(40) as threads:
    answers = threads.map(lambda _: throttle(pool, "user123", (2, 1, 60), fail="open")[0], range(40))
    print(sorted(answers))
