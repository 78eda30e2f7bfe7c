"""Throttles for Django REST framework, beside redis_py.py and after `pip install djangorestframework limits redis`.

    class Login(APIView):
        throttle_classes = [ApiThrottle, LoginThrottle]
"""

import ipaddress
import unicodedata

from django.core.exceptions import ImproperlyConfigured
from limits import parse, storage, strategies
from rest_framework.exceptions import APIException
from rest_framework.permissions import SAFE_METHODS
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from redis_py import answer, ask, throttle


class Unanswered(APIException):
    status_code, default_detail = 503, "Try again later."


def address(request):
    """Returns the caller's IPv4 address, or the /64 of one of IPv6: a customer has all of it."""
    if api_settings.NUM_PROXIES is None:
        raise ImproperlyConfigured("Without NUM_PROXIES, 0 or more, a caller may write any address")
    ip = ipaddress.ip_address(BaseThrottle().get_ident(request))
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return str(ip if ip.version == 4 else ipaddress.ip_network((int(ip), 64), strict=False))


class RedisThrottle(BaseThrottle):
    """Limits what `charge` charges. If Redis does not answer, `unanswered` says whether the request passes."""

    def unanswered(self, request):
        return False

    def allow_request(self, request, view):
        # A browser's preflight is free. After a refusal, REST framework asks further throttles: they charge nothing.
        is_preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if is_preflight or getattr(request, "is_throttled", False):
            return True
        self.reply = self.charge(request)
        if self.reply is None and self.unanswered(request) is True:
            return True
        status, headers = answer(self.reply)
        view.headers.update(headers)
        if status != 200:
            request.is_throttled, view.headers["Cache-Control"] = True, "no-store"
        if self.reply is None:
            raise Unanswered
        return status == 200

    def wait(self):
        return self.reply[3] if self.reply[3] >= 0 else None


# While Redis does not answer, this process passes three requests a day of each address.
memory, quota = storage.MemoryStorage(), parse("3/day")
alone = strategies.MovingWindowRateLimiter(memory)


class ApiThrottle(RedisThrottle):
    """Limits a user by two quotas in one call, and a visitor by address."""

    def unanswered(self, request):
        return alone.hit(quota, address(request))

    def charge(self, request):
        if request.user and request.user.is_authenticated and request.user.pk is not None:
            return throttle(f"api_user:{request.user.pk}", 9, 10, 1, 1, 999, 1000, 86400)
        return throttle(f"api_address:{address(request)}", 2, 1, 86400)


class LoginThrottle(RedisThrottle):
    """Limits attempts by account and address, not by GET, HEAD and OPTIONS. `charge(request, -1)` gives one back."""

    def allow_request(self, request, view):
        return request.method in SAFE_METHODS or super().allow_request(request, view)

    def charge(self, request, quantity=1):
        name = request.data.get("username") if isinstance(request.data, dict) else None
        # The name has to be the one that finds the account.
        name = unicodedata.normalize("NFKC", str("" if name is None else name).strip()[:150]).casefold()
        by_account = f"login_account:{name}", 4, 20, 3600, quantity
        by_address = f"login_address:{address(request)}", 19, 60, 3600, quantity
        reply = ask([int, [int] * 5, [int] * 5], "CL.MTHROTTLE", *by_account, *by_address)
        # The limit that refuses for longer or, if both allow, has fewer tokens left.
        return reply and max(reply[1:], key=lambda row: (row[0], row[3], -row[2]))
