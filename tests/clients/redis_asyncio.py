"""Rate limiting with redis-py and asyncio.

As a program: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] python3 redis_asyncio.py
"""

import asyncio
import os
import sys

import redis.asyncio as redis

# How long a call waits for the server, in seconds, and for a connection of the pool.
TIMEOUT = float(os.environ.get("TIMEOUT", 0.1))
# What a call without an answer decides: "open" allows it, "closed" refuses it.
FAIL = os.environ.get("FAIL", "open")


def connect():
    """A client for all tasks: with 20 connections at most, for which a call waits in turn."""
    pool = redis.BlockingConnectionPool(
        port=int(os.environ.get("REDIS_PORT", 6379)),
        max_connections=20,
        timeout=TIMEOUT,
        socket_connect_timeout=TIMEOUT,
        socket_timeout=TIMEOUT,
        retry=None,
    )
    return redis.Redis(connection_pool=pool)


async def throttle(client, key, max_burst, count, period, quantity=1):
    """Makes a call, and returns the status and the headers to answer an HTTP request with."""
    try:
        limited, limit, remaining, retry_after, reset_after = await client.execute_command(
            "CL.THROTTLE", key, max_burst, count, period, quantity
        )
    except (redis.RedisError, OSError) as error:
        print(f"no limits, failing {FAIL}: {error}", file=sys.stderr)
        return (200, {}) if FAIL == "open" else (503, {"Retry-After": "1"})
    headers = {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": str(reset_after),
    }
    # -1 where the call was allowed, and where it asks for more than the limit and never will be.
    if retry_after >= 0:
        headers["Retry-After"] = str(retry_after)
    return 429 if limited else 200, headers


async def main():
    client = connect()
    # Three at once and one a minute; the last call asks for four.
    for quantity in 1, 1, 1, 1, 4:
        status, headers = await throttle(client, "user123", 2, 1, 60, quantity)
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))


if __name__ == "__main__":
    asyncio.run(main())
