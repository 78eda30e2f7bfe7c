"""Django REST framework's throttles with limits that redis-cell keeps. Beside redis_py.py.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["django_throttles.AnonThrottle", "django_throttles.UserThrottle"],
        "DEFAULT_THROTTLE_RATES": {"anon": "3/day", "user": "1000/day"},
        "NUM_PROXIES": 0,
    }

`20/min` allows a burst of 20 requests, and then one every three seconds.
"""

from rest_framework.exceptions import APIException
from rest_framework.throttling import AnonRateThrottle, ScopedRateThrottle, SimpleRateThrottle, UserRateThrottle

from redis_py import throttle


class Unanswered(APIException):
    """Redis did not decide: 503. `wait` becomes the header Retry-After."""

    status_code, default_detail, wait = 503, "Try again later.", 1


class RedisCellThrottle(SimpleRateThrottle):
    """A base for throttles with their own `get_cache_key`.

    Fails closed: while Redis does not answer, requests are refused. With `fallback = True`, REST framework counts them
    in Django's cache instead.
    """

    fallback = False

    def allow_request(self, request, view):
        key = self.get_cache_key(request, view) if self.rate is not None else None
        if key is None:
            return True
        # A rate of 0 refuses every request, but a count must be positive.
        self.reply = throttle(key, self.num_requests - 1, max(self.num_requests, 1), self.duration)
        if self.reply is not None:
            return self.reply[0] == 0
        if self.fallback:
            return super().allow_request(request, view)
        raise Unanswered

    def wait(self):
        if self.reply is None:
            return super().wait()
        # No wait helps if the rate is 0.
        return self.reply[3] if self.reply[3] >= 0 else None


class AnonThrottle(AnonRateThrottle, RedisCellThrottle):
    pass


class UserThrottle(UserRateThrottle, RedisCellThrottle):
    pass


class ScopedThrottle(ScopedRateThrottle, RedisCellThrottle):
    pass
