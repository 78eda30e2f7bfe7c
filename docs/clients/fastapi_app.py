"""FastAPI, and a dependency that limits a route.

To run this file, beside redis_asyncio.py and limits.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROCESSES=1] [PROXY=192.0.2.1] uvicorn --no-proxy-headers fastapi_app:app

uvicorn itself would believe an X-Forwarded-For from this machine; --no-proxy-headers leaves it to limits.py.
"""

from fastapi import Depends, FastAPI, HTTPException, Request, Response

from limits import Limit, limited_address, show
from redis_asyncio import connect, throttle

client = connect()
app = FastAPI()


def limited(limit):
    """Limits each address by itself. Several routes may have one limit, and one route several."""

    async def by_address(request: Request, response: Response):
        address = limited_address(request.client and request.client.host, request.headers.getlist("X-Forwarded-For"))
        status, headers, _ = await throttle(client, limit, address)
        if status != 200:
            raise HTTPException(status, "Try again later", headers)
        show(headers, response.headers)

    return Depends(by_address)


@app.get("/", dependencies=[limited(Limit("hello", (2, 1, 86400)))])
async def hello():
    return "Hello"


@app.post("/login", dependencies=[limited(Limit("login", (2, 1, 86400), fail="closed"))])
async def login():
    return "Welcome"
