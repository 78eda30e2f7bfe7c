"""FastAPI, and a dependency that limits a route.

To run this file, beside redis_asyncio.py and after `pip install fastapi limits redis uvicorn`:
[REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] uvicorn --no-proxy-headers fastapi_app:app
Behind your own proxy, --forwarded-allow-ips=192.0.2.1 takes the address that it adds to X-Forwarded-For.
"""

import contextlib
import ipaddress

from fastapi import Depends, FastAPI, HTTPException
from fastapi.requests import HTTPConnection
from limits import parse, storage, strategies
from starlette.datastructures import MutableHeaders

from redis_asyncio import answer, connect, throttle

shared = {}


@contextlib.asynccontextmanager
async def lifespan(app):
    # The connections belong to one event loop: in your tests, each `with TestClient(app)` has its own.
    shared["redis"] = connect()
    yield
    await shared["redis"].connection_pool.disconnect()


class LimitedAPI(FastAPI):
    """Whatever answers a request, of this application or one mounted in it, shows the headers of its limit."""

    async def __call__(self, scope, receive, send):
        headers = scope.setdefault("limit_headers", {})

        async def send_shown(message):
            if message["type"] == "http.response.start":
                message = {"headers": [], **message}
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await super().__call__(scope, receive, send_shown)


def network(address):
    """Returns an IPv4 address, or the /64 of one of IPv6: a customer has all of it."""
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return str(ip if ip.version == 4 else ipaddress.ip_network((int(ip), 64), strict=False))


def limited(name, *quota, caller=lambda request: None, unanswered=lambda caller: False):
    """Limits a route: each account that `caller` returns has the quota, or else each address.

    Without an answer from Redis, a request passes if `unanswered` returns True. Of two limits of a route, its headers
    are those of the last one that was charged. Free are a browser's preflight, and a body that is no JSON.
    """

    async def charge(request: HTTPConnection):
        if request.scope.get("method") == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return
        who = caller(request)
        if who and type(who) not in (str, int):
            raise TypeError(f"a caller is a text or a number, not {who!r}")
        who = f"caller:{who}" if who else network(request.client.host)
        status, headers = answer(reply := await throttle(shared["redis"], f"{name}:{who}".encode(), *quota))
        if reply is None and unanswered(who) is True:
            status, headers = 200, {}
        request.scope.setdefault("limit_headers", {}).update(headers)
        if status != 200:
            request.scope["limit_headers"]["Cache-Control"] = "no-store"
            raise HTTPException(status, "Try again later", headers)

    return Depends(charge)


app = LimitedAPI()
app.router.lifespan_context = lifespan  # Since FastAPI 0.93 also by LimitedAPI(lifespan=lifespan).
# While Redis does not answer, this process passes three requests a day of each caller.
memory, quota = storage.MemoryStorage(), parse("3/day")
alone = strategies.MovingWindowRateLimiter(memory)


@app.get("/", dependencies=[limited("hello", 2, 1, 86400, unanswered=lambda caller: alone.hit(quota, "hello", caller))])
async def hello():
    return "Hello"


@app.post("/login", dependencies=[limited("login", 2, 1, 86400)])
async def login():
    return "Welcome"
