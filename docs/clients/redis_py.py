"""Rate limiting with redis-py. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 redis_py.py"""

import os
import re

import redis

URL = os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379"
TIMEOUT = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
OPTIONS = {
    # In seconds. After a timeout or a broken connection, the next call opens a new connection.
    "socket_connect_timeout": TIMEOUT,
    "socket_timeout": TIMEOUT,
    # Do not retry: a call that timed out may have taken its token.
    "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0),
    # READONLY, as after a failover, also closes the connection.
    "retry_on_error": [redis.exceptions.ReadOnlyError],
    "max_connections": 1000,
}
# One client for all threads of a process. Each concurrent call has a connection of its own.
client = redis.Redis.from_url(URL, **OPTIONS)


def throttle(key, max_burst, count, period, quantity=1, *further_quotas):
    """Returns the five integers of CL.THROTTLE, six with further quotas."""
    return client.execute_command("CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)


def is_mistake(error):
    """Returns whether an argument is wrong. Otherwise, Redis did not decide. redis-py removes ERR from a message."""
    return type(error) in (redis.ResponseError, redis.DataError) and not re.match("[A-Z]{3}|max number", str(error))


if __name__ == "__main__":
    # Three calls pass at once, and one more each minute.
    for _ in range(4):
        try:
            print(throttle("user123", 2, 1, 60))
        except redis.RedisError as error:
            if is_mistake(error):
                raise
            print("Redis did not decide:", error)
