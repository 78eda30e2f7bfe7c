"""Django REST framework's throttles with redis-cell. Needs redis_py.py. In the settings:
"DEFAULT_THROTTLE_CLASSES": ["django_throttles.AnonThrottle"]"""

from rest_framework.exceptions import APIException
from rest_framework.throttling import AnonRateThrottle, ScopedRateThrottle, SimpleRateThrottle, UserRateThrottle

from redis_py import throttle


class Unanswered(APIException):
    """Redis did not decide: responds with 503. `wait` becomes the Retry-After header."""

    status_code, default_detail, wait = 503, "Try again later.", 1


class RedisCellThrottle(SimpleRateThrottle):
    """A base class for throttles with their own `get_cache_key`. While Redis does not answer, requests are refused, or
    with `fallback = True`, counted in Django's cache."""

    fallback = False

    def allow_request(self, request, view):
        key = self.get_cache_key(request, view) if self.rate is not None else None
        if key is None:
            return True
        # A rate of 0 refuses every request, but the count must be positive.
        self.reply = throttle(key, self.num_requests - 1, max(self.num_requests, 1), self.duration)
        if self.reply is not None:
            return self.reply[0] == 0
        if self.fallback:
            return super().allow_request(request, view)
        raise Unanswered

    def wait(self):
        if self.reply is None:
            return super().wait()
        # With a rate of 0, no request can ever pass.
        return self.reply[3] if self.reply[3] >= 0 else None


class AnonThrottle(AnonRateThrottle, RedisCellThrottle):
    pass


class UserThrottle(UserRateThrottle, RedisCellThrottle):
    pass


class ScopedThrottle(ScopedRateThrottle, RedisCellThrottle):
    pass
