"""The examples of redis-py. Reads lines such as "200 192.0.2.7 share": makes that many calls at once by this caller,
and prints their answers. "closed" calls are refused without Redis.

Usage: calls.py redis_py | redis_asyncio
"""

import asyncio
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import redis_asyncio
import redis_py
from limits import Limit

LIMITS = {fail: Limit(fail, (2, 1, 86400), fail=fail) for fail in ("share", "closed")}


def in_threads(client, calls, *arguments):
    barrier = threading.Barrier(calls)

    def call(_):
        barrier.wait()
        return redis_py.throttle(client, *arguments)

    with ThreadPoolExecutor(calls) as threads:
        return list(threads.map(call, range(calls)))


async def in_tasks(client, calls, *arguments):
    return await asyncio.gather(*(redis_asyncio.throttle(client, *arguments) for _ in range(calls)))


loop, is_plain = asyncio.new_event_loop(), sys.argv[1] == "redis_py"
client = (redis_py if is_plain else redis_asyncio).connect()
for line in sys.stdin:
    calls, caller, fail = line.split()
    arguments = client, int(calls), LIMITS[fail], caller
    answers = in_threads(*arguments) if is_plain else loop.run_until_complete(in_tasks(*arguments))
    print(json.dumps(answers), flush=True)
