"""slowapi on Starlette, behind one proxy, whose address uvicorn trusts."""

import limits_storage
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address

app = FastAPI()
app.state.limiter = limiter = Limiter(get_remote_address, storage_uri="redis-cell://", strategy="gcra")
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
app.add_exception_handler(
    limits_storage.Unanswered,
    lambda request, error: PlainTextResponse("Try again later", 503, {"Retry-After": "1"}),
)


@app.post("/login")
@limiter.limit("3/day")
def login(request: Request):
    return "Welcome"


fallback = Limiter(get_remote_address, storage_uri="redis-cell://", strategy="gcra", in_memory_fallback_enabled=True)


@app.get("/")
@fallback.limit("3/day")
def hello(request: Request):
    return "Hello"



@app.get("/zero")
@limiter.limit("0/day")
def zero(request: Request):
    return "Never"
