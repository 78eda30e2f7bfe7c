"""A dependency for FastAPI that limits a route. To run this file, next to redis_asyncio.py and redis_py.py:
pip install fastapi redis uvicorn
[REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] uvicorn --no-proxy-headers fastapi_app:app"""

import contextlib
import ipaddress

from fastapi import Depends, FastAPI, HTTPException, Request, Response

from redis_asyncio import answer, connect, throttle


@contextlib.asynccontextmanager
async def lifespan(app):
    # A client belongs to the event loop of its application.
    app.state.redis = connect()
    yield
    await app.state.redis.aclose()


def address(request: Request):
    """Returns the caller's IPv4 address, or its IPv6 address's /64 network, because a customer has a whole /64."""
    ip = ipaddress.ip_address(request.client.host)
    if ip.version == 6 and not ip.ipv4_mapped:
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def limited(name, *quota, key=address):
    """Returns a dependency that limits a route. `key` is a function or dependency that returns the caller's name.

    Fails closed: while Redis does not answer, requests are refused with 503.
    """

    async def limit(request: Request, response: Response, caller: str = Depends(key)):
        if not caller:
            raise ValueError("a limit needs the caller's name")
        reply = await throttle(request.app.state.redis, f"{name}:{caller}", *quota)
        status, headers = answer(reply)
        response.headers.update(headers)
        if status != 200:
            raise HTTPException(status, "Try again later", headers)

    return Depends(limit)


app = FastAPI(lifespan=lifespan)


@app.post("/login", dependencies=[limited("login", 4, 20, 3600)])
async def login():
    return "Welcome"
