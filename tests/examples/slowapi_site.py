"""slowapi on Starlette, behind one proxy, whose address uvicorn trusts."""

import os

from fastapi import FastAPI, Request, Response
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address

from page import limiter

app = FastAPI()
uri = f"{os.environ['REDIS_URL'].replace('redis', 'redis-cell', 1)}?socket_timeout={os.environ['REDIS_TIMEOUT']}"
settings = {"storage_uri": uri, "strategy": "moving-window", "headers_enabled": True}
app.state.limiter = limiter
fallback = Limiter(get_remote_address, in_memory_fallback_enabled=True, **settings)
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.post("/login")
@limiter.limit("3/day")
def login(request: Request, response: Response):
    return "Welcome"


@app.get("/")
@fallback.limit("3/day")
def hello(request: Request, response: Response):
    return "Hello"


@app.get("/zero")
@limiter.limit("0/day", key_func=lambda: "\ud800")
def zero(request: Request, response: Response):
    return "Never"
