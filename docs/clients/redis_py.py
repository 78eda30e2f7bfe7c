"""Rate limiting with redis-py. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 redis_py.py"""

import os
import re

import redis

URL = os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379"
TIMEOUT = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
OPTIONS = {
    # Timeouts in seconds. After a connection times out or breaks, the next call opens a new one.
    "socket_connect_timeout": TIMEOUT,
    "socket_timeout": TIMEOUT,
    # Do not retry: a call that timed out may have taken its token.
    "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0),
    # Close the connection after a READONLY error: it leads to a replica, for example after a failover.
    "retry_on_error": [redis.exceptions.ReadOnlyError],
    "max_connections": 1000,
}
# All threads of a process share this client. Each concurrent call uses a separate connection.
client = redis.Redis.from_url(URL, **OPTIONS)


def throttle(key, max_burst, count, period, quantity=1, *further_quotas):
    """Returns the five integers of CL.THROTTLE's reply, or six if there are further quotas."""
    return client.execute_command("CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)


def is_mistake(error):
    """Returns whether the error means a wrong argument, not an outage. redis-py removes ERR from the message."""
    return type(error) in (redis.ResponseError, redis.DataError) and not re.match("[A-Z]{3}|max number", str(error))


if __name__ == "__main__":
    # The quota allows three calls at once, and then one a minute.
    for _ in range(4):
        try:
            print(throttle("user123", 2, 1, 60))
        except redis.RedisError as error:
            if is_mistake(error):
                raise
            print("Redis did not decide:", error)
