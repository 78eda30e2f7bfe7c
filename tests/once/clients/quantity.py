"""Calls whose quantity is no number of tokens. Prints "refused" for each one that is."""

import asyncio
import math

import redis_asyncio
import redis_py


def awaited(*words, **named):
    return asyncio.run(redis_asyncio.throttle(*words, **named))


for throttle in redis_py.throttle, awaited:
    for quantity in -1, 2**63, 1.5, math.nan, "1":
        try:
            print(throttle(None, "user123", (2, 1, 60), quantity=quantity, fail="open"))
        except (ValueError, TypeError):
            print("refused")
