"""slowapi on Starlette, behind one proxy, whose address uvicorn trusts."""

from fastapi import FastAPI, Request, Response
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded

from page import fallback, limiter

app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.post("/login")
@limiter.limit("3/day")
def login(request: Request, response: Response):
    return "Welcome"


@app.get("/")
@fallback.limit("3/day")
def hello(request: Request, response: Response):
    return "Hello"
