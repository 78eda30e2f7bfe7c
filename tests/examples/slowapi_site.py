"""slowapi on Starlette, behind one proxy, whose address uvicorn trusts."""

from fastapi import Request, Response
from slowapi import Limiter
from slowapi.util import get_remote_address

from page import app, limiter, settings

fallback = Limiter(get_remote_address, in_memory_fallback_enabled=True, **settings)


@app.get("/")
@fallback.limit("3/day")
def hello(request: Request, response: Response):
    return "Hello"


@app.get("/zero")
@limiter.limit("0/day", key_func=lambda: "\ud800")
def zero(request: Request, response: Response):
    return "Never"
