"""Flask, and a decorator that limits a view. Beside redis_py.py: flask --app flask_app run"""

import functools

from flask import Flask, make_response, request

from redis_py import connect, throttle

app = Flask(__name__)
client = connect()


def limited(max_burst, count, period):
    """So many calls of a view, for each address: see "Which key" for others."""

    def decorate(view):
        @functools.wraps(view)
        def limited_view(*arguments, **named):
            key = f"{view.__name__}:{request.remote_addr}"
            status, headers = throttle(client, key, max_burst, count, period)
            answer = view(*arguments, **named) if status == 200 else ("Try again later\n", status)
            response = make_response(answer)
            response.headers.update(headers)
            return response

        return limited_view

    return decorate


@app.get("/")
@limited(2, 1, 60)
def hello():
    return "Hello\n"
