"""An HTTP server that lets each user in ten times at once, and then ten times a minute; and callers who are not logged
in, by address, three times at once, and then once a minute. /quota shows them what they have left, and takes nothing.

As a program: [REDIS_PORT=6379] [REPLICA_PORT=6380] [HTTP_PORT=8080] [TIMEOUT=0.1] [FAIL=open] [PROXY=192.0.2.1]
python3 http_server.py
"""

import ipaddress
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis

# max_burst, count, period
LIMITS = {"user": (9, 10, 60), "address": (2, 1, 60)}
# In place of what authenticates your users.
USERS = {"Bearer secret-of-alice": "alice"}
# The address of your own proxy, if requests come through one.
PROXY = os.environ.get("PROXY")
# How long a call waits for Redis, in seconds.
TIMEOUT = float(os.environ.get("TIMEOUT", 0.1))
# What a call without an answer decides: "open" allows it, "closed" refuses it.
FAIL = os.environ.get("FAIL", "open")


def connect(port):
    """A client for all threads, which does not ask again by itself."""
    return redis.Redis(port=int(port), socket_connect_timeout=TIMEOUT, socket_timeout=TIMEOUT, retry=None)


client = connect(os.environ.get("REDIS_PORT", 6379))
# A replica, if there is one, answers what takes nothing.
replica = connect(os.environ["REPLICA_PORT"]) if "REPLICA_PORT" in os.environ else client


def caller(headers, peer):
    """Who is limited, and by which of the limits."""
    user = USERS.get(headers.get("Authorization"))
    if user:
        return "user", user
    if peer == PROXY:
        # The last word is the proxy's; those before it, the caller may have made up.
        peer = ",".join(headers.get_all("X-Forwarded-For", [peer])).split(",")[-1].strip()
    address = ipaddress.ip_address(peer)
    if address.version == 6:
        # An IPv4 address that is written as one of IPv6 is limited as itself, any other with the 2^64 around it.
        address = address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False)
    return "address", address


def decide(kind, name):
    """The status and the headers of the answer to a request from this caller."""
    max_burst, count, period = LIMITS[kind]
    try:
        limited, limit, remaining, retry_after, reset_after = client.execute_command(
            "CL.THROTTLE", f"{kind}:{name}", max_burst, count, period
        )
    except redis.RedisError as error:
        print(f"no limits, failing {FAIL}: {error}", file=sys.stderr)
        return (200, {}) if FAIL == "open" else (503, {"Retry-After": 1})
    window = -(-limit * period // count)  # the time in which all tokens come back, rounded up
    more_in = retry_after if retry_after >= 0 else reset_after
    headers = {
        "X-RateLimit-Limit": limit,
        "X-RateLimit-Remaining": remaining,
        "X-RateLimit-Reset": reset_after,
        "RateLimit-Policy": f'"{kind}";q={limit};w={window}',
        "RateLimit": f'"{kind}";r={remaining};t={more_in}',
    }
    # -1 where the call was allowed, and where it asks for more than the limit and never will be.
    if retry_after >= 0:
        headers["Retry-After"] = retry_after
    return 429 if limited else 200, headers


def quota(kind, name):
    """The status and the headers of the answer to a caller who asks what is left, and the answer."""
    try:
        _, limit, remaining, retry_after, reset_after = replica.execute_command(
            "CL.LOOK", f"{kind}:{name}", *LIMITS[kind]
        )
    except redis.RedisError as error:
        print(f"no quota to show: {error}", file=sys.stderr)
        return 503, {"Retry-After": 1}, {}
    # Of a request that came now: 0 where it would be allowed.
    wait = max(retry_after, 0)
    return 200, {}, {"limit": limit, "remaining": remaining, "retry_after": wait, "reset_after": reset_after}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        who = caller(self.headers, self.client_address[0])
        if self.path == "/quota":
            status, headers, body = quota(*who)
            self.answer(status, headers, json.dumps(body) + "\n")
        else:
            status, headers = decide(*who)
            self.answer(status, headers, {200: "Hello\n", 429: "Too many requests\n", 503: "Try again later\n"}[status])

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", len(body))
        self.end_headers()
        self.wfile.write(body.encode())


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("HTTP_PORT", 8080))), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
