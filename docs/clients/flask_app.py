"""Flask, and a decorator that limits a view.

To run this file, beside redis_py.py and limits.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROCESSES=1] [PROXY=192.0.2.1] flask --app flask_app run
"""

import functools

from flask import Flask, make_response, request

from limits import Limit, limited_address, show
from redis_py import connect, throttle

app = Flask(__name__)
client = connect()


def limited(limit):
    """Limits a view, each address by itself. Several views may have one limit, and one view several."""

    def decorate(view):
        @functools.wraps(view)
        def limited_view(*arguments, **named):
            address = limited_address(request.remote_addr, request.headers.getlist("X-Forwarded-For"))
            status, headers, _ = throttle(client, limit, address)
            response = make_response(view(*arguments, **named) if status == 200 else ("Try again later\n", status))
            show(headers, response.headers)
            return response

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
