"""FastAPI, and a dependency that limits a path. Beside redis_asyncio.py: uvicorn fastapi_app:app"""

from fastapi import Depends, FastAPI, HTTPException, Request, Response

from redis_asyncio import connect, throttle

app = FastAPI()
client = connect()


class Limit:
    """So many calls of a path, for each address: see "Which key" for others."""

    def __init__(self, max_burst, count, period):
        self.quota = max_burst, count, period

    async def __call__(self, request: Request, response: Response):
        key = f"{request.url.path}:{request.client.host}"
        status, headers = await throttle(client, key, *self.quota)
        if status != 200:
            raise HTTPException(status, "Try again later", headers)
        response.headers.update(headers)


@app.get("/", dependencies=[Depends(Limit(2, 1, 60))])
async def hello():
    return "Hello"
