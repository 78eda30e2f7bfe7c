"""Flask, and a decorator that limits a view.

To run this file, beside redis_py.py and addresses.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROXY=192.0.2.1] flask --app flask_app run
"""

import functools

from flask import Flask, make_response, request

from addresses import limited_address
from redis_py import Pool, throttle

app = Flask(__name__)
pool = Pool()


def limited(*quotas, fail):
    """Limits a view, each address by itself. `throttle` explains quotas and fail."""

    def decorate(view):
        @functools.wraps(view)
        def limited_view(*arguments, **named):
            address = limited_address(request.remote_addr, request.headers.getlist("X-Forwarded-For"))
            status, headers = throttle(pool, f"{request.endpoint}:{address}", *quotas, fail=fail)
            answer = view(*arguments, **named) if status == 200 else ("Try again later\n", status)
            response = make_response(answer)
            response.headers.update(headers)
            return response

        return limited_view

    return decorate


@app.get("/")
@limited((2, 1, 60), fail="open")
def hello():
    return "Hello\n"


@app.post("/login")
@limited((2, 1, 60), fail="closed")
def login():
    return "Welcome\n"
