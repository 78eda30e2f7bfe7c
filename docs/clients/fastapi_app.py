"""FastAPI, and a dependency that limits a route.

To run this file, beside redis_asyncio.py and addresses.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROXY=192.0.2.1] uvicorn --no-proxy-headers fastapi_app:app

By default uvicorn takes the caller's address from X-Forwarded-For if the connection comes from this machine.
--no-proxy-headers leaves that to addresses.py.
"""

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response

from addresses import limited_address
from redis_asyncio import Pool, throttle

# A stand-in for your own table of API keys.
CUSTOMERS = {"secret-of-acme": "acme"}

pool = Pool()
app = FastAPI(on_startup=[pool.open])


class Limit:
    """A dependency that limits a route, each address by itself. `throttle` explains quotas and fail."""

    def __init__(self, *quotas, fail):
        self.quotas, self.fail = quotas, fail

    async def __call__(self, request: Request, response: Response):
        address = limited_address(request.client and request.client.host, request.headers.getlist("X-Forwarded-For"))
        # The key has the route's template: with the path, each number in /items/7 would have its own limiter.
        route = f"{request.method} {request.scope['route'].path}"
        await limit(response, f"{route}:{address}", *self.quotas, fail=self.fail)


async def customer(response: Response, x_api_key: str = Header("")):
    """Limits a customer, by name, by two quotas in one call: 10 at once and 10 a second, and 1,000 at once and 1,000 a
    day.
    """
    name = CUSTOMERS.get(x_api_key)
    if not name:
        raise HTTPException(401, "No such key")
    await limit(response, f"customer:{name}", (9, 10, 1), (999, 1000, 86400), fail="open")


async def limit(response, key, *quotas, fail):
    status, headers = await throttle(pool, key, *quotas, fail=fail)
    if status != 200:
        raise HTTPException(status, "Try again later", headers)
    response.headers.update(headers)


@app.get("/", dependencies=[Depends(Limit((2, 1, 60), fail="open"))])
async def hello():
    return "Hello"


@app.post("/login", dependencies=[Depends(Limit((2, 1, 60), fail="closed"))])
async def login():
    return "Welcome"


@app.get("/items/{number}", dependencies=[Depends(Limit((2, 1, 60), fail="open"))])
async def item(number: int):
    return number


@app.get("/orders/{number}", dependencies=[Depends(customer)])
async def order(number: int):
    return number
