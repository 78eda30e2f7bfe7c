"""Flask, and a decorator that limits a view.

To run this file, beside redis_py.py and limits.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROCESSES=1] [PROXY=192.0.2.1] flask --app flask_app run
"""

import functools

from flask import Flask, after_this_request, current_app, request

from limits import Limit, limited_address, show
from redis_py import connect, throttle

app = Flask(__name__)
client = connect()


def limited(limit):
    """Limits a view, each address by itself. Several views may have one limit, and one view several. Charges each
    method, but no preflight of a browser. A view without a limit, as for health, is free."""

    def decorate(view):
        @functools.wraps(view)
        def limited_view(*arguments, **named):
            if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
                address = limited_address(request.remote_addr, request.headers.getlist("X-Forwarded-For"))
                decision = throttle(client, limit, address)
                show(decision, shown := request.environ.setdefault("limits", {}))
                # Whatever answers the request shows the headers, also an error.
                after_this_request(lambda response: response.headers.update(shown) or response)
                if decision[0] != 200:
                    return "Try again later\n", decision[0]
            # A view may be an `async def`.
            return current_app.ensure_sync(view)(*arguments, **named)

        return limited_view

    return decorate


@app.get("/")
@limited(Limit("hello", (2, 1, 86400)))
def hello():
    return "Hello\n"


@app.post("/login")
@limited(Limit("login", (2, 1, 86400), fail="closed"))
def login():
    return "Welcome\n"
