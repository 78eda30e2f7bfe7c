"""Rate limiting with redis-py and asyncio.

To run this file, beside limits.py: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=share] python3 redis_asyncio.py
"""

import asyncio
import os
import time

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from limits import Limit, report

# The longest time, in seconds, that a call waits for a free connection, for a new one, and for the reply.
TIMEOUT = float(os.environ.get("TIMEOUT", 0.1))


def connect(url=f"redis://127.0.0.1:{os.environ.get('REDIS_PORT', 6379)}", **settings):
    """Returns a client for all tasks of an event loop, with at most 20 connections."""
    times = {"timeout": TIMEOUT, "socket_timeout": TIMEOUT}
    if not url.startswith("unix:"):
        times["socket_connect_timeout"] = TIMEOUT
    # A repeated call would take twice, so there are no retries. The listed error closes the connection: after a
    # failover behind one address, it leads to a replica.
    once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    if redis.VERSION >= (5,):
        # redis-py 8.1 with protocol 3 does not notice that the server has closed a connection.
        settings["protocol"] = 2
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=20, **times, **once, **settings)
    return redis.asyncio.Redis(connection_pool=pool)


async def ask(client, *words):
    """Returns Redis's reply, or None. Whatever goes wrong is one case: Redis did not decide."""
    try:
        return await client.execute_command(*words)
    except (redis.RedisError, OSError) as error:
        report(error)
        return None


async def throttle(client, limit, caller, quantity=1):
    """Returns the status and the headers to answer a request with, and how the call ended."""
    known, asked = limit.known(caller, quantity), time.monotonic_ns()
    if known:
        return known
    reply = await ask(client, limit.command, *limit.words(caller, quantity))
    return limit.decide(reply, caller, quantity, asked)


async def main():
    client = connect()
    # Three at once and one a minute; the last call asks for four.
    limit = Limit("example", (2, 1, 60), fail=os.environ.get("FAIL", "share"))
    for quantity in 1, 1, 1, 1, 4:
        status, headers, _ = await throttle(client, limit, "user123", quantity)
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))


if __name__ == "__main__":
    asyncio.run(main())
