"""Rate limiting with redis-py and asyncio. To run this file:
[REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 redis_asyncio.py"""

import asyncio
import os
import re

import redis.asyncio

URL = os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379"
TIMEOUT = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
OPTIONS = {
    # Timeouts in seconds. After a connection times out or breaks, the next call opens a new one.
    "socket_connect_timeout": TIMEOUT,
    "socket_timeout": TIMEOUT,
    # Do not retry: a call that timed out may have taken its token.
    "retry": redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
    # Close the connection after a READONLY error: it leads to a replica, for example after a failover.
    "retry_on_error": [redis.exceptions.ReadOnlyError],
    "max_connections": 1000,
}


async def throttle(client, key, max_burst, count, period, quantity=1, *further_quotas):
    """Returns the five integers of CL.THROTTLE's reply, or six if there are further quotas."""
    return await client.execute_command("CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)


async def main():
    # All tasks of an event loop share this client. Each concurrent call uses a separate connection.
    client = redis.asyncio.Redis.from_url(URL, **OPTIONS)
    # The quota allows three calls at once, and then one a minute.
    for _ in range(4):
        try:
            print(await throttle(client, "user123", 2, 1, 60))
        except redis.RedisError as error:
            # An error reply that begins with ERR, which redis-py removes, means that an argument is wrong.
            is_reply = type(error) in (redis.ResponseError, redis.DataError)
            if is_reply and not re.match("[A-Z]{3}|max number", str(error)):
                raise
            print("Redis did not decide:", error)


if __name__ == "__main__":
    asyncio.run(main())
