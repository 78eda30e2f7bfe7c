"""Rate limiting with redis-py and asyncio. To run this file:
[REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 redis_asyncio.py"""

import asyncio
import os
import re

import redis.asyncio

URL = os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379"
TIMEOUT = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
OPTIONS = {
    # In seconds. After a timeout or a broken connection, the next call opens a new connection.
    "socket_connect_timeout": TIMEOUT,
    "socket_timeout": TIMEOUT,
    # Do not retry: a call that timed out may have taken its token.
    "retry": redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
    # READONLY, as after a failover, also closes the connection.
    "retry_on_error": [redis.exceptions.ReadOnlyError],
    "max_connections": 1000,
}


async def throttle(client, key, max_burst, count, period, quantity=1, *further_quotas):
    """Returns the five integers of CL.THROTTLE, six with further quotas."""
    return await client.execute_command("CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)


async def main():
    # One client for all tasks of an event loop. Each concurrent call has a connection of its own.
    client = redis.asyncio.Redis.from_url(URL, **OPTIONS)
    # Three calls pass at once, and one more each minute.
    for _ in range(4):
        try:
            print(await throttle(client, "user123", 2, 1, 60))
        except redis.RedisError as error:
            # An argument is wrong. redis-py removes ERR from the message.
            is_reply = type(error) in (redis.ResponseError, redis.DataError)
            if is_reply and not re.match("[A-Z]{3}|max number", str(error)):
                raise
            print("Redis did not decide:", error)


if __name__ == "__main__":
    asyncio.run(main())
