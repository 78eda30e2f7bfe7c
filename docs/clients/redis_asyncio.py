"""Rate limiting with redis-py and asyncio. To run this file, next to redis_py.py, which has the settings:
[REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 redis_asyncio.py"""

import asyncio
import operator

import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry

from redis_py import FAILURES, TIMES, URL, answer, decided, packed

# No retries, as in redis_py.py. With RESP3, redis-py 8 loses a call if the server has closed an idle connection.
ONCE = {"retry": Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
ONCE |= {"protocol": 2} if redis.VERSION >= (5,) else {}


def connect(url=URL):
    """Returns a client for all tasks of the running event loop. Fails if no loop is running."""
    asyncio.get_running_loop()
    return Redis(connection_pool=BlockingConnectionPool.from_url(url, max_connections=20, **TIMES, **ONCE))


async def ask(client, shape, command, *words):
    """Makes one call. Returns its reply, or None after a failure or a reply of an unexpected shape."""
    try:
        reply = await client.execute_command(command, *map(packed, words))
    except FAILURES as error:
        reply = error
    return decided(reply, shape)


async def throttle(client, key, max_burst, count, period, quantity=1, *further_quotas):
    """Calls CL.THROTTLE. Returns its five integers, six with further quotas, or None."""
    numbers = map(operator.index, (max_burst, count, period, quantity, *further_quotas))
    return await ask(client, [int] * (6 if further_quotas else 5), "CL.THROTTLE", key, *numbers)


async def main():
    # Three calls pass at once, and one more each minute.
    client = connect()
    for _ in range(4):
        print(await throttle(client, "user123", 2, 1, 60))


if __name__ == "__main__":
    asyncio.run(main())
