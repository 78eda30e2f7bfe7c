"""Throttles for Django REST framework, beside redis_py.py and limits.py.

    class Orders(APIView):
        throttle_classes = [ApiThrottle]

REST framework authenticates before it throttles: limit the guessing of tokens elsewhere, in nginx for example. With
"django_rest.headers" in MIDDLEWARE, the answer to an exception, which is Django's own, shows the headers too.
"""

import unicodedata

from rest_framework.exceptions import APIException
from rest_framework.permissions import SAFE_METHODS
from rest_framework.throttling import BaseThrottle

from limits import Limit, limited_address, show
from redis_py import ask, connect, throttle

client = connect()
USER = Limit("api_user", (9, 10, 1), (999, 1000, 86400))
VISITOR = Limit("api_address", (2, 1, 86400))
ACCOUNT = Limit("login_account", (4, 20, 3600), fail="closed")
ADDRESS = Limit("login_address", (19, 60, 3600), fail="closed")


def charge(request, view, limit, caller):
    """Charges a request; one that a further limit refuses is charged to none."""
    decision = throttle(client, limit, caller)
    show(decision, view.headers)
    request.charged, request._request.limits = getattr(request, "charged", []), view.headers
    if decision[0] != 200:
        give_back(request, every=True)
        # REST framework would ask further throttles: an exception ends the request.
        refusal = APIException("Try again later.")
        refusal.status_code = decision[0]
        raise refusal
    request.charged.append((limit, caller))


def headers(get_response):
    def middleware(request):
        response = get_response(request)
        for name, value in getattr(request, "limits", {}).items():
            response.setdefault(name, value)
        return response

    return middleware


def address(request):
    # REST framework's own get_ident trusts whatever the caller writes into X-Forwarded-For.
    return limited_address(request.META.get("REMOTE_ADDR"), [request.META.get("HTTP_X_FORWARDED_FOR", "")])


class ApiThrottle(BaseThrottle):
    """Limits a user by two quotas in one call, and a visitor by address. A browser's preflight is free."""

    def allow_request(self, request, view):
        user = request.user
        limit, caller = (USER, str(user.pk)) if user and user.is_authenticated else (VISITOR, address(request))
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
            charge(request, view, limit, caller)
        return True


class LoginThrottle(BaseThrottle):
    """Charges a log-in to the address, before the body is read, and to the account, or to neither.

    GET, HEAD and OPTIONS try no password, and are free.
    """

    def allow_request(self, request, view):
        if request.method not in SAFE_METHODS:
            charge(request, view, ADDRESS, address(request))
            name = request.data.get("username") if isinstance(request.data, dict) else None
            # The name has to be the one that finds the account. A serializer makes the text of a number.
            name = str(name) if isinstance(name, (str, int, float)) else ""
            name = unicodedata.normalize("NFKC", name).strip().casefold()[:150]
            if name:
                charge(request, view, ACCOUNT, name)
        return True


def give_back(request, every=False):
    """Gives the attempt back, after a right password; with `every`, also what other throttles have charged."""
    for limit, caller in getattr(request, "charged", []):
        if every or limit in (ACCOUNT, ADDRESS):
            ask(client, limit.command, *limit.words(caller, -1))
