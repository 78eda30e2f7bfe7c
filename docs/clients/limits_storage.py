"""A storage for Flask-Limiter, slowapi, and other limiters that use `limits`. Needs redis_py.py.

    import limits_storage
    Limiter(get_remote_address, app=app, storage_uri="redis-cell://", strategy="gcra")
"""

import time

from limits.storage import MovingWindowSupport, Storage
from limits.strategies import STRATEGIES, FixedWindowRateLimiter, MovingWindowRateLimiter

from redis_py import ask, throttle

try:
    from werkzeug.exceptions import ServiceUnavailable
except ImportError:
    ServiceUnavailable = Exception


class Unanswered(ServiceUnavailable):
    """Redis did not decide. Flask responds with 503; in other frameworks, add a handler for this exception."""

    def __init__(self):
        super().__init__("Try again later.")
        self.retry_after = 1


def decided(reply):
    if reply is None:
        raise Unanswered
    return reply


class RedisCellStorage(MovingWindowSupport, Storage):
    STORAGE_SCHEME = ["redis-cell"]
    base_exceptions = Unanswered

    def acquire_entry(self, key, limit, expiry, amount=1):
        # A limit of 0 refuses every request, but the count must be positive.
        limited, *_ = decided(throttle(key, limit - 1, max(limit, 1), expiry, amount))
        return not limited

    def get_moving_window(self, key, limit, expiry):
        look = ask([int] * 5, "CL.LOOK", key, limit - 1, max(limit, 1), expiry)
        limited, _, remaining, retry_after, reset_after = decided(look)
        # The limiters subtract the time a moment later, add a second, and round down.
        end = int(time.time() + max(retry_after if limited else reset_after, 1) + 0.1)
        return end - expiry, limit - remaining

    def check(self):
        # A quantity of 0 takes no tokens, and creates no key.
        return throttle("LIMITER/check", 0, 1, 1, 0) is not None

    def clear(self, key):
        decided(ask(int, "DEL", key))

    def incr(self, *arguments, **named):
        raise NotImplementedError('redis-cell:// needs strategy="gcra"')

    get = get_expiry = reset = incr


def gcra(storage):
    """Creates the strategy. A fallback in memory counts in fixed windows, which free their memory when they end."""
    kind = MovingWindowRateLimiter if isinstance(storage, RedisCellStorage) else FixedWindowRateLimiter
    return kind(storage)


STRATEGIES["gcra"] = gcra
