"""FastAPI, and a dependency that limits a route. Without --no-proxy-headers, uvicorn believes an X-Forwarded-For.

To run this file, beside redis_asyncio.py and limits.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROCESSES=1] [PROXY=192.0.2.1] uvicorn --no-proxy-headers fastapi_app:app
"""

from fastapi import Depends, FastAPI, HTTPException, WebSocketException
from fastapi.requests import HTTPConnection
from starlette.datastructures import MutableHeaders

from limits import Limit, limited_address, show
from redis_asyncio import connect, throttle

client = connect()


class App(FastAPI):
    """An application in which whatever answers a request shows the headers, also an error."""

    async def __call__(self, scope, receive, send):
        shown = scope["limits"] = {}

        async def send_shown(message):
            if message["type"] == "http.response.start":
                message = {"headers": [], **message}
                MutableHeaders(scope=message).update(shown)
            await send(message)

        await super().__call__(scope, receive, send_shown)


# The connections belong to one event loop: in your tests, each `with TestClient(app)` has its own.
app = App(on_shutdown=[client.connection_pool.disconnect])


def limited(limit):
    """Limits each address by itself. Several routes may have one limit, and one route several.

    A browser's preflight is not charged, nor a body that is no JSON: FastAPI refuses it first. A WebSocket is charged
    when it connects, and refused by status 403; before FastAPI 0.97, only a parameter can be its dependency.
    """

    async def by_address(request: HTTPConnection):
        if request.scope.get("method") == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return
        address = limited_address(request.client and request.client.host, request.headers.getlist("X-Forwarded-For"))
        decision = await throttle(client, limit, address)
        show(decision, request.scope.setdefault("limits", {}))
        if decision[0] != 200:
            refusal = HTTPException(decision[0], "Try again later", decision[1])
            raise WebSocketException(1008) if request.scope["type"] == "websocket" else refusal

    return Depends(by_address)


@app.get("/", dependencies=[limited(Limit("hello", (2, 1, 86400)))])
async def hello():
    return "Hello"


@app.post("/login", dependencies=[limited(Limit("login", (2, 1, 86400), fail="closed"))])
async def login():
    return "Welcome"
