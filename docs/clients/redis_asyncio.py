"""Rate limiting with redis-py and asyncio. To run: [REDIS_URL=redis://…] [REDIS_TIMEOUT=…] python3 redis_asyncio.py"""

import asyncio
import logging
import os

from redis import ReadOnlyError
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

# The longest time, in seconds, that a call waits for a free connection, for a new one, and for the reply.
TIMEOUT = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
TIMES = {"timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT, "socket_timeout": TIMEOUT}
URL = os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379"


def connect(url=URL):
    """Returns a client for all tasks of the event loop that runs, and fails where none does yet."""
    asyncio.get_running_loop()
    # A repeated call would take twice. The listed error closes the connection: after a failover, it leads to a replica.
    once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [ReadOnlyError]}
    return Redis(connection_pool=BlockingConnectionPool.from_url(url, max_connections=20, **TIMES, **once))


async def ask(client, shape, *words):
    """Makes one call. Returns a reply of this shape, or None: Redis did not decide, whatever went wrong."""
    try:
        reply = await client.execute_command(*words)
        if shape_of(reply) != shape:
            raise TypeError(f"the reply is {reply!r:.99}")
        return reply
    except Exception as error:
        logging.getLogger("throttle").error("Redis did not decide: %s: %s", type(error).__name__, error)
        return None


def shape_of(reply):
    return [shape_of(part) for part in reply] if isinstance(reply, list) else type(reply)


async def throttle(client, key, max_burst, count, period, quantity=1, *further_quotas):
    """Calls CL.THROTTLE. Returns its five integers, or six if there are further quotas, or None."""
    shape = [int] * (6 if further_quotas else 5)
    return await ask(client, shape, "CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)


def answer(reply):
    """Returns the status and the headers to answer a request with."""
    if reply is None:
        return 503, {"Retry-After": "1"}
    limited, limit, remaining, retry_after, reset_after = reply[:5]
    numbers = {"Limit": limit, "Remaining": remaining, "Reset": reset_after}
    headers = {f"X-RateLimit-{name}": str(number) for name, number in numbers.items()}
    if retry_after >= 0:
        return 429, {**headers, "Retry-After": str(retry_after)}
    # A limited call without a wait asks for more than the limit, which may be 0.
    return (413 if limit else 403) if limited else 200, headers


async def main():
    client = connect()
    # The limiter allows three at once and one a minute; the last call asks for four.
    for quantity in 1, 1, 1, 1, 4:
        status, headers = answer(await throttle(client, "user123", 2, 1, 60, quantity))
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))


if __name__ == "__main__":
    asyncio.run(main())
