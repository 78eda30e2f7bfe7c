"""An HTTP server with limits. A user gets ten requests at once, and then ten a minute. An address without a login gets
three requests at once, and then one a minute. Any address gets three attempts to log in at once, and then one a minute.
/quota shows callers how many requests they have left, and takes nothing.

To run this file, beside redis_py.py and addresses.py:
[REDIS_PORT=6379] [REPLICA_PORT=6380] [HTTP_PORT=8080] [TIMEOUT=0.1] [PROXY=192.0.2.1] python3 http_server.py
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis

from addresses import limited_address
from redis_py import Busy, Pool, throttle

# max_burst, count, period, and the decision on a call without an answer: "open" allows it, "closed" refuses it.
LIMITS = {
    "user": (9, 10, 60, "open"),
    "address": (2, 1, 60, "open"),
    "login": (2, 1, 60, "closed"),
}
# A stand-in for your own authentication.
USERS = {"Bearer secret-of-alice": "alice"}

pool = Pool()
# A replica, if there is one, answers the calls that take nothing.
replica = Pool(os.environ["REPLICA_PORT"]) if "REPLICA_PORT" in os.environ else pool


def decide(kind, name):
    """Returns the status and the headers of the answer to a request from this caller."""
    max_burst, count, period, fail = LIMITS[kind]
    status, headers = throttle(pool, f"{kind}:{name}", (max_burst, count, period), fail=fail)
    if "X-RateLimit-Limit" in headers:
        limit, remaining, reset = (headers[f"X-RateLimit-{word}"] for word in ("Limit", "Remaining", "Reset"))
        window = -(-int(limit) * period // count)  # the time in which all tokens come back, rounded up
        headers["RateLimit-Policy"] = f'"{kind}";q={limit};w={window}'
        headers["RateLimit"] = f'"{kind}";r={remaining};t={headers.get("Retry-After", reset)}'
    return status, headers


def quota(kind, name):
    """Returns the status, the headers and the body of the answer to a caller who asks what is left of the limit."""
    *numbers, _ = LIMITS[kind]
    try:
        _, limit, remaining, retry_after, reset_after = replica.call("CL.LOOK", f"{kind}:{name}", *numbers)
    except (Busy, redis.RedisError) as error:
        print(f"no quota to show: {error!r}", file=sys.stderr)
        return 503, {"Retry-After": 1}, {}
    # The wait before the next request: 0 if it would be allowed now.
    wait = max(retry_after, 0)
    return 200, {}, {"limit": limit, "remaining": remaining, "retry_after": wait, "reset_after": reset_after}


class Handler(BaseHTTPRequestHandler):
    # The seconds after which a connection without a request is closed, and its thread ends.
    timeout = 5

    def do_GET(self):
        user = USERS.get(self.headers.get("Authorization"))
        who = ("user", user) if user else ("address", self.address())
        if self.path == "/quota":
            status, headers, body = quota(*who)
            self.answer(status, headers, json.dumps(body) + "\n")
        else:
            self.answer_as_decided(*decide(*who))

    def do_POST(self):
        """Answers an attempt to log in, whatever the path."""
        self.answer_as_decided(*decide("login", self.address()))

    def address(self):
        return limited_address(self.client_address[0], self.headers.get_all("X-Forwarded-For", []))

    def answer_as_decided(self, status, headers):
        texts = {200: "Hello", 413: "Too large a request", 429: "Too many requests", 503: "Try again later"}
        self.answer(status, headers, texts[status] + "\n")

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", len(body))
        self.end_headers()
        self.wfile.write(body.encode())


class Server(ThreadingHTTPServer):
    # The most connections that wait to be accepted. Python's default is five, and more requests may come at once.
    request_queue_size = 1024


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(os.environ.get("HTTP_PORT", 8080))), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
