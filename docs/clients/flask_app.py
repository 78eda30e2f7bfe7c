"""Flask, and a decorator that limits a view.

To run this file, beside redis_py.py and after `pip install flask limits redis`:
[REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] flask --app flask_app run
"""

import functools
import ipaddress

from flask import Flask, abort, after_this_request, current_app, request
from limits import parse, storage, strategies

from redis_py import answer, throttle

app = Flask(__name__)
# Behind one proxy of your own, request.remote_addr is the address that this proxy adds to X-Forwarded-For with
# app.wsgi_app = werkzeug.middleware.proxy_fix.ProxyFix(app.wsgi_app, x_for=1)


def network(address):
    """Returns an IPv4 address, or the /64 of one of IPv6: a customer has all of it."""
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return str(ip if ip.version == 4 else ipaddress.ip_network((int(ip), 64), strict=False))


def limited(name, *quota, caller=lambda request: None, unanswered=lambda caller: False):
    """Limits a view, below its route: each account that `caller` returns has the quota, or else each address.

    Without an answer from Redis, a request passes if `unanswered` returns True. Of two limits of a view, its headers
    are those of the last one that was charged. A browser's preflight is free.
    """

    def decorate(view):
        @functools.wraps(view)
        def limited_view(*arguments, **named):
            if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
                # Functions and views may be an `async def`.
                who = current_app.ensure_sync(caller)(request)
                if who and type(who) not in (str, int):
                    raise TypeError(f"a caller is a text or a number, not {who!r}")
                who = f"caller:{who}" if who else network(request.remote_addr)
                status, headers = answer(reply := throttle(f"{name}:{who}".encode(), *quota))
                if reply is None and current_app.ensure_sync(unanswered)(who) is True:
                    status, headers = 200, {}
                if status != 200:
                    headers["Cache-Control"] = "no-store"
                # Whatever answers the request shows the headers, also an error.
                after_this_request(lambda response: response.headers.update(headers) or response)
                if status != 200:
                    abort(status, "Try again later")
            return current_app.ensure_sync(view)(*arguments, **named)

        return limited_view

    return decorate


# While Redis does not answer, this process passes three requests a day of each caller.
memory, quota = storage.MemoryStorage(), parse("3/day")
alone = strategies.MovingWindowRateLimiter(memory)


@app.get("/")
@limited("hello", 2, 1, 86400, unanswered=lambda caller: alone.hit(quota, "hello", caller))
def hello():
    return "Hello\n"


@app.post("/login")
@limited("login", 2, 1, 86400)
def login():
    return "Welcome\n"
