"""slowapi on Starlette, behind one proxy, whose address uvicorn trusts."""

import limits_storage
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address

app = FastAPI()
redis_cell = {"storage_uri": "redis-cell://", "strategy": "gcra", "headers_enabled": True}
app.state.limiter = limiter = Limiter(get_remote_address, **redis_cell)
fallback = Limiter(get_remote_address, in_memory_fallback_enabled=True, **redis_cell)
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
app.add_exception_handler(
    limits_storage.Unanswered,
    lambda request, error: PlainTextResponse("Try again later", 503, {"Retry-After": "1"}),
)


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
