"""Rate limiting with redis-py. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 redis_py.py"""

import logging
import operator
import os

import redis

URL = os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379"
# The longest time, in seconds, to wait for a free connection, for a new one, and for the reply.
TIMEOUT = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
TIMES = {"timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT, "socket_timeout": TIMEOUT}
# No retries: a call that timed out may have taken its token. READONLY, as after a failover, closes the connection.
ONCE = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
# What redis-py and the network raise. The last four come from replies that violate the protocol.
FAILURES = redis.RedisError, OSError, ValueError, OverflowError, RecursionError, IndexError
# One client for all threads of a process.
client = redis.Redis(connection_pool=redis.BlockingConnectionPool.from_url(URL, max_connections=20, **TIMES, **ONCE))


def ask(shape, command, *words):
    """Makes one call. Returns its reply, or None after a failure or a reply of an unexpected shape."""
    try:
        reply = client.execute_command(command, *map(packed, words))
    except FAILURES as error:
        reply = error
    return decided(reply, shape)


def packed(word):
    """Returns an argument's bytes. A wrong type or too large a number is the caller's mistake, not an outage."""
    if isinstance(word, int) and -(2**63) <= word < 2**63:
        return b"%d" % word
    if not isinstance(word, (str, bytes)):
        raise TypeError(f"not a string, bytes or a 64-bit integer: {word!r:.99}")
    # JSON may contain a lone surrogate.
    return word.encode(errors="surrogatepass") if isinstance(word, str) else word


def decided(reply, shape):
    if has_shape(reply, shape):
        return reply
    logging.getLogger("throttle").error("Redis did not decide: %s: %.200s", type(reply).__name__, reply)


def has_shape(reply, shape):
    if isinstance(shape, list) and isinstance(reply, list):
        return len(reply) == len(shape) and all(map(has_shape, reply, shape))
    return type(reply) is shape


def throttle(key, max_burst, count, period, quantity=1, *further_quotas):
    """Calls CL.THROTTLE. Returns its five integers, six with further quotas, or None."""
    numbers = map(operator.index, (max_burst, count, period, quantity, *further_quotas))
    return ask([int] * (6 if further_quotas else 5), "CL.THROTTLE", key, *numbers)


def answer(reply):
    """Returns the status and headers of the HTTP response."""
    if reply is None:
        return 503, {"Retry-After": "1"}
    limited, limit, remaining, retry_after, reset_after = reply[:5]
    numbers = {"Limit": limit, "Remaining": remaining, "Reset": reset_after}
    headers = {f"X-RateLimit-{name}": str(number) for name, number in numbers.items()}
    if retry_after >= 0:
        return 429, {**headers, "Retry-After": str(retry_after)}
    # Such a call can never pass: it asks for more than the limit, which may be 0.
    return (413 if limit else 403) if limited else 200, headers


if __name__ == "__main__":
    # Three calls pass at once, and one more each minute.
    for _ in range(4):
        print(throttle("user123", 2, 1, 60))
