"""A log-in form and an API, protected. docs/protect.md explains it step by step.

To run this file, beside redis_asyncio.py, addresses.py and ban.lua:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROXY=192.0.2.1] uvicorn --no-proxy-headers protect:app
"""

import sys
from contextlib import suppress
from pathlib import Path

import redis
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter, generate_latest
from pydantic import BaseModel, Field

from addresses import limited_address
from redis_asyncio import Busy, Pool

# Stand-ins for your own tables of users and customers.
PASSWORDS = {"alice": "correct horse", "bob": "battery staple"}
CUSTOMERS = {"secret-of-acme": "acme"}
# max_burst, count and period of each limiter.
ACCOUNT, ADDRESS, ATTEMPTS = (4, 20, 3600), (19, 60, 3600), (49, 50, 86400)
# The seconds after which a ban is forgiven; those of the first ban, and those of each further one.
BANS = (86400, 3600, 86400)
BAN = Path(__file__).with_name("ban.lua").read_text()
CALLS = Counter("limit_calls", "Calls of a limit, by how they ended", ["limit", "result"])
# Each count begins at 0: Prometheus would not see a count that begins with the failures of a first outage.
for limit in "ban", "login", "login given back", "customer", "visitor":
    for result in "allowed", "limited", "busy", "failed open", "failed closed":
        CALLS.labels(limit, result)
# The most bytes of a body. No form is larger, even if a password's letters are escaped.
LARGEST = 4096

pool = Pool()
app = FastAPI(on_startup=[pool.open])


@app.middleware("http")
async def bounded(request, call_next):
    """Refuses a large body before it is read: reading it would take time, and no limiter would be charged."""
    if "transfer-encoding" in request.headers:
        return Response("The request states no length", 411, {"Connection": "close"})
    if int(request.headers.get("content-length", 0)) > LARGEST:
        return Response("The request is too large", 413, {"Connection": "close"})
    return await call_next(request)


@app.exception_handler(RequestValidationError)
async def invalid(request, error):
    """Refuses a form without repeating its contents, which may be a password, or no text."""
    return Response("The request is not as it should be", 422)


async def ask(limit, fail, *call):
    """Returns the server's answer, or None if there is none and the limit fails open."""
    try:
        answer = await pool.call(*call)
    except Busy:
        CALLS.labels(limit, "busy").inc()
        raise refusal(503, 1)
    except (redis.RedisError, OSError) as error:
        print(f"{limit} fails {fail}: {error}", file=sys.stderr)
        CALLS.labels(limit, f"failed {fail}").inc()
        if fail != "open":
            raise refusal(503, 1)
        return None
    limited = answer[0] if isinstance(answer, list) else answer
    CALLS.labels(limit, "limited" if limited else "allowed").inc()
    return answer


def refusal(status, seconds):
    return HTTPException(status, "Try again later", {"Retry-After": str(seconds)})


def caller(request: Request):
    return limited_address(request.client and request.client.host, request.headers.getlist("X-Forwarded-For"))


class Form(BaseModel):
    name: str = Field(max_length=64)
    password: str = Field(max_length=256)


@app.post("/login")
async def login(form: Form, ip: str = Depends(caller)):
    wait = await ask(
        "ban", "closed", "EVAL", BAN, 3, f"attempts:{ip}", f"banned:{ip}", f"offences:{ip}", *ATTEMPTS, *BANS
    )
    if wait:
        raise refusal(429, -(-wait // 1000))
    # Half of a surrogate pair is in no name and in no key.
    name = form.name.strip().lower().encode(errors="replace").decode()
    account, address = (f"account:{name}", *ACCOUNT), (f"address:{ip}", *ADDRESS)
    limited, *each = await ask("login", "closed", "CL.MTHROTTLE", *account, 1, *address, 1)
    if limited:
        raise refusal(429, max(retry_after for _, _, _, retry_after, _ in each))
    if PASSWORDS.get(name) != form.password:
        raise HTTPException(401, "Wrong name or password")
    attempts = (f"attempts:{ip}", *ATTEMPTS)
    # The password is right: the log-in succeeds even if no connection is free to give back.
    with suppress(HTTPException):
        await ask("login given back", "open", "CL.MTHROTTLE", *account, -1, *address, -1, *attempts, -1)
    return "Welcome"


async def limited(request: Request, response: Response, ip: str = Depends(caller), x_api_key: str = Header("")):
    customer = CUSTOMERS.get(x_api_key)
    if customer:
        name, call = "customer", (f"customer:{customer}", 9, 10, 1, 1, 999, 1000, 86400)
    else:
        name, call = "visitor", (f"{request.scope['route'].path}:{ip}", 4, 5, 60, 1, 29, 30, 86400)
    answer = await ask(name, "open", "CL.THROTTLE", *call)
    if answer:
        limited, limit, remaining, retry_after, reset_after, quota = answer
        numbers = {"Limit": limit, "Remaining": remaining, "Reset": reset_after, "Quota": quota}
        headers = {f"X-RateLimit-{name}": str(number) for name, number in numbers.items()}
        if limited:
            raise HTTPException(429, "Too many requests", {**headers, "Retry-After": str(retry_after)})
        response.headers.update(headers)


@app.get("/items/{number}", dependencies=[Depends(limited)])
async def item(number: int):
    return number


@app.get("/metrics")
async def metrics():
    return Response(generate_latest(), media_type="text/plain; version=0.0.4")
