"""The examples of redis-py. Reads lines such as "200 192.0.2.7 share": makes that many calls at once by this caller,
and prints a line of their statuses. "closed" calls are refused without Redis.

Usage: calls.py redis_py | redis_asyncio
"""

import asyncio
import sys
import threading

import redis_asyncio
import redis_py
from limits import Limit

LIMITS = {fail: Limit(fail, (2, 1, 86400), fail=fail) for fail in ("share", "closed")}


def in_threads(client, calls, caller, limit):
    barrier, statuses = threading.Barrier(calls), []

    def call():
        barrier.wait()
        statuses.append(redis_py.throttle(client, limit, caller)[0])

    threads = [threading.Thread(target=call) for _ in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


async def in_tasks(client, calls, caller, limit):
    answers = await asyncio.gather(*(redis_asyncio.throttle(client, limit, caller) for _ in range(calls)))
    return [status for status, _, _ in answers]


loop = asyncio.new_event_loop()
client = (redis_py if sys.argv[1] == "redis_py" else redis_asyncio).connect()
for line in sys.stdin:
    calls, caller, fail = line.split()
    arguments = client, int(calls), caller, LIMITS[fail]
    if sys.argv[1] == "redis_py":
        statuses = in_threads(*arguments)
    else:
        statuses = loop.run_until_complete(in_tasks(*arguments))
    print(*statuses, flush=True)
