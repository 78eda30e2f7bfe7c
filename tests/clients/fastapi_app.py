"""FastAPI, and a dependency that limits a route.

Beside redis_asyncio.py and addresses.py:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROXY=192.0.2.1] uvicorn --no-proxy-headers fastapi_app:app
"""

from fastapi import Depends, FastAPI, HTTPException, Request, Response

from addresses import limited_address
from redis_asyncio import Pool, throttle

pool = Pool()
app = FastAPI(on_startup=[pool.open])


class Limit:
    """The max_burst, count and period of a route, for each address; fail is "open" or "closed", as throttle has it."""

    def __init__(self, *quota, fail):
        self.quota, self.fail = quota, fail

    async def __call__(self, request: Request, response: Response):
        address = limited_address(request.client.host, request.headers.getlist("X-Forwarded-For"))
        # The route's template: by the path, each number in /items/7 would be a limiter of its own.
        key = f"{request.scope['route'].path}:{address}"
        status, headers = await throttle(pool, key, *self.quota, fail=self.fail)
        if status != 200:
            raise HTTPException(status, "Try again later", headers)
        response.headers.update(headers)


@app.get("/", dependencies=[Depends(Limit(2, 1, 60, fail="open"))])
async def hello():
    return "Hello"


@app.get("/items/{number}", dependencies=[Depends(Limit(2, 1, 60, fail="open"))])
async def item(number: int):
    return number


@app.post("/login", dependencies=[Depends(Limit(2, 1, 60, fail="closed"))])
async def login():
    return "Welcome"
