"""Rate limiting with redis-py. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 redis_py.py"""

import logging
import os

import redis

# The longest time, in seconds, that a call waits for a free connection, for a new one, and for the reply.
TIMEOUT = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
TIMES = {"timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT, "socket_timeout": TIMEOUT}
# A repeated call would take twice. The listed error closes the connection, which leads to a replica after a failover.
ONCE = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
URL = os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379"
# One client for all threads of a process.
client = redis.Redis(connection_pool=redis.BlockingConnectionPool.from_url(URL, max_connections=20, **TIMES, **ONCE))


def ask(shape, *words):
    """Makes one call. Returns a reply of this shape, or None: Redis did not decide, whatever went wrong."""
    try:
        reply = client.execute_command(*words)
        if shape_of(reply) != shape:
            raise TypeError(f"the reply is {reply!r:.99}")
        return reply
    except Exception as error:
        logging.getLogger("throttle").error("Redis did not decide: %s: %s", type(error).__name__, error)
        return None


def shape_of(reply):
    return [shape_of(part) for part in reply] if isinstance(reply, list) else type(reply)


def throttle(key, max_burst, count, period, quantity=1, *further_quotas):
    """Calls CL.THROTTLE. Returns its five integers, or six if there are further quotas, or None."""
    shape = [int] * (6 if further_quotas else 5)
    return ask(shape, "CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)


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


if __name__ == "__main__":
    # The limiter allows three at once and one a minute; the last call asks for four.
    for quantity in 1, 1, 1, 1, 4:
        status, headers = answer(throttle("user123", 2, 1, 60, quantity))
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))
