"""Exact limits for Django REST framework: its own throttles, kept in Redis by redis-cell. In the settings, REDIS_CELL
is a client of redis-py or valkey-py."""

from typing import Any, Optional

from django.conf import settings
from rest_framework import exceptions, throttling

from redis_cell._outage import answered


class Unanswered(exceptions.APIException):
    """Redis did not decide: responds with 503. `wait` becomes the Retry-After header."""

    status_code, default_detail, default_code, wait = 503, "Try again later.", "service_unavailable", 1


class SimpleRateThrottle(throttling.SimpleRateThrottle):
    """A base class for your own throttles, which define `get_cache_key`."""

    def allow_request(self, request: Any, view: Any) -> bool:
        self.key = None if self.rate is None else self.get_cache_key(request, view)
        if self.key is None:
            return True
        self.now = self.timer()
        # The rate is part of the key, so a new rate starts full. A caller's name may contain a lone surrogate.
        name = f"{self.key}/{self.num_requests}/{self.duration}".encode(errors="surrogatepass")
        # A rate of 0 refuses every request, but the count must be positive.
        quota = self.num_requests - 1, max(self.num_requests, 1), self.duration
        is_refused = True
        try:
            with answered(Unanswered):
                self.reply = settings.REDIS_CELL.execute_command("CL.THROTTLE", name, *quota)
            is_refused = self.reply[0] == 1
        finally:
            if is_refused:
                # The view adds its `headers` to the response.
                getattr(view, "headers", {})["Cache-Control"] = "no-store"
        return self.throttle_failure() if is_refused else self.throttle_success()

    def throttle_success(self) -> bool:
        return True

    def wait(self) -> Optional[int]:
        # With a rate of 0, no request can ever pass.
        return self.reply[3] if self.reply[3] >= 0 else None


class AnonRateThrottle(throttling.AnonRateThrottle, SimpleRateThrottle):
    pass


class UserRateThrottle(throttling.UserRateThrottle, SimpleRateThrottle):
    pass


class ScopedRateThrottle(throttling.ScopedRateThrottle, SimpleRateThrottle):
    pass
