"""FastAPI, and a dependency that limits a route.

To run this file, beside redis_asyncio.py and limits.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROCESSES=1] [PROXY=192.0.2.1] uvicorn --no-proxy-headers fastapi_app:app

By default uvicorn takes the caller's address from X-Forwarded-For if the connection comes from this machine.
--no-proxy-headers leaves that to limits.py.
"""

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response

from limits import Limit, limited_address, show
from redis_asyncio import connect, throttle

# A stand-in for your own table of API keys.
CUSTOMERS = {"secret-of-acme": "acme"}
# 10 at once and 10 a second, and 1,000 at once and 1,000 a day.
PLAN = Limit("customer", (9, 10, 1), (999, 1000, 86400))

client = connect()
app = FastAPI()


def limited(limit):
    """Returns a dependency that limits each address by itself. Several routes may have one limit."""

    async def by_address(request: Request, response: Response):
        address = limited_address(request.client and request.client.host, request.headers.getlist("X-Forwarded-For"))
        await charge(response, limit, address)

    return Depends(by_address)


async def customer(response: Response, x_api_key: str = Header("")):
    """Limits a customer, by name. An unknown API key is refused, and makes no limiter."""
    name = CUSTOMERS.get(x_api_key)
    if not name:
        raise HTTPException(401, "No such key")
    await charge(response, PLAN, name)


async def charge(response, limit, caller):
    status, headers, _ = await throttle(client, limit, caller)
    if status != 200:
        raise HTTPException(status, "Try again later", headers)
    show(headers, response.headers)


@app.get("/", dependencies=[limited(Limit("hello", (2, 1, 86400)))])
async def hello():
    return "Hello"


@app.post("/login", dependencies=[limited(Limit("login", (2, 1, 86400), fail="closed"))])
async def login():
    return "Welcome"


@app.get("/orders/{number}", dependencies=[Depends(customer)])
async def order(number: int):
    return number
