"""The examples of redis-py. Reads lines such as "200 192.0.2.7 share": makes that many calls at once by this caller, and
prints their answers. "closed" calls are refused without Redis.

Usage: calls.py redis_py | redis_asyncio
"""

import asyncio
import json
import sys
import threading

import redis_asyncio
import redis_py
from limits import Limit

LIMITS = {fail: Limit(fail, (2, 1, 86400), fail=fail) for fail in ("share", "closed")}


def in_threads(client, calls, caller, limit):
    barrier, answers = threading.Barrier(calls), []

    def call():
        barrier.wait()
        answers.append(redis_py.throttle(client, limit, caller))

    threads = [threading.Thread(target=call) for _ in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


async def in_tasks(client, calls, caller, limit):
    return await asyncio.gather(*(redis_asyncio.throttle(client, limit, caller) for _ in range(calls)))


loop = asyncio.new_event_loop()
client = (redis_py if sys.argv[1] == "redis_py" else redis_asyncio).connect()
for line in sys.stdin:
    calls, caller, fail = line.split()
    arguments = client, int(calls), caller, LIMITS[fail]
    if sys.argv[1] == "redis_py":
        answers = in_threads(*arguments)
    else:
        answers = loop.run_until_complete(in_tasks(*arguments))
    print(json.dumps(answers), flush=True)
