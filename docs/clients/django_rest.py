"""Throttles for Django REST framework, beside redis_py.py and limits.py.

    class Orders(APIView):
        throttle_classes = [ApiThrottle]

REST framework authenticates before it throttles: limit the guessing of tokens elsewhere, in nginx for example.
"""

import unicodedata

from rest_framework.exceptions import APIException
from rest_framework.throttling import BaseThrottle

from limits import Limit, decide_together, limited_address, show
from redis_py import ask, connect, throttle

client = connect()
USER = Limit("api:user", (9, 10, 1), (999, 1000, 86400))
VISITOR = Limit("api:address", (2, 1, 86400))
ACCOUNT = Limit("login:account", (4, 20, 3600), fail="closed")
ADDRESS = Limit("login:address", (19, 60, 3600), fail="closed")


def answer(view, decision):
    """Shows a decision. REST framework would ask further throttles after a refusal: this exception ends the request."""
    status, headers, _ = decision
    show(headers, view.headers)
    if status != 200:
        refusal = APIException("Try again later.")
        refusal.status_code = status
        raise refusal
    return True


def address(request):
    # REST framework's own get_ident trusts whatever the caller writes into X-Forwarded-For.
    return limited_address(request.META.get("REMOTE_ADDR"), [request.META.get("HTTP_X_FORWARDED_FOR", "")])


class ApiThrottle(BaseThrottle):
    """Limits a user by two quotas in one call, and a visitor by address."""

    def allow_request(self, request, view):
        user = request.user
        limit, caller = (USER, user.pk) if user and user.is_authenticated else (VISITOR, address(request))
        return answer(view, throttle(client, limit, caller))


class LoginThrottle(BaseThrottle):
    """Charges a log-in to the account and to the address, or to neither. Two throttles would not."""

    def allow_request(self, request, view):
        name = request.data.get("username") if isinstance(request.data, dict) else None
        # The name has to be the one that finds the account.
        name = unicodedata.normalize("NFKC", name).strip().casefold()[:150] if isinstance(name, str) else ""
        request.charged = (ACCOUNT, name), (ADDRESS, address(request))
        return answer(view, decide_together(ask(client, *together(request, 1))))


def give_back(request):
    """Gives the attempt back, after a right password."""
    ask(client, *together(request, -1))


def together(request, quantity):
    words = [word for limit, caller in request.charged for word in limit.words(caller, quantity)]
    return "CL.MTHROTTLE", *words
