"""A log-in form and an API, protected. docs/protect.md explains it step by step.

To run this file, beside fastapi_app.py, redis_asyncio.py, limits.py and ban.lua:
[REDIS_PORT=6379] [TIMEOUT=0.1] [PROCESSES=1] [PROXY=192.0.2.1] uvicorn --no-proxy-headers protect:app
"""

from pathlib import Path

from fastapi import Depends, Header, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter, generate_latest
from pydantic import BaseModel, Field

from fastapi_app import App
from limits import CLOSED, Limit, is_integer, is_reply, limited_address, seconds, show
from redis_asyncio import ask, connect, throttle

# Stand-ins for your own tables of users and customers.
PASSWORDS = {"alice": "correct horse", "bob": "battery staple"}
CUSTOMERS = {"secret-of-acme": "acme"}
# max_burst, count and period in seconds. A log-in is refused while Redis does not answer.
ACCOUNT = Limit("account", (4, 20, 3600), fail="closed")
ADDRESS = Limit("address", (19, 60, 3600), fail="closed")
ATTEMPTS = Limit("attempts", (49, 50, 86400), fail="closed")
CUSTOMER = Limit("customer", (9, 10, 1), (999, 1000, 86400))
VISITOR = Limit("visitor", (4, 5, 60), (29, 30, 86400))
# The seconds after which a ban is forgiven; those of the first ban, and those of each further one.
BANS = (86400, 3600, 86400)
BAN = Path(__file__).with_name("ban.lua").read_text()
CALLS = Counter("limit_calls", "Calls of a limit, by how they ended", ["limit", "result"])
# Each count begins at 0: Prometheus would not see a count that begins with the first outage.
RESULTS = {name: "closed" for name in ("ban", "login", "login given back")} | {"customer": "share", "visitor": "share"}
for name, without_redis in RESULTS.items():
    for result in "allowed", "limited", without_redis:
        CALLS.labels(name, result)
# The most bytes of a body. No form is larger, even if a password's letters are escaped.
LARGEST = 4096

client = connect()
app = App()


@app.middleware("http")
async def bounded(request, call_next):
    """Refuses a large body before it is read: reading it would take time, and no limiter would be charged."""
    if "transfer-encoding" in request.headers:
        return Response("The request states no length", 411, {"Connection": "close"})
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 4 or int(length) > LARGEST:
        return Response("The request is too large", 413, {"Connection": "close"})
    return await call_next(request)


@app.exception_handler(RequestValidationError)
async def invalid(request, error):
    """Refuses a form without repeating its contents, which may be a password, or no text."""
    return Response("The request is not as it should be", 422)


def answer(name, decision):
    """Counts a decision. Refuses the request if the call was not allowed."""
    status, headers, result = decision
    CALLS.labels(name, result).inc()
    if status != 200:
        raise HTTPException(status, "Try again later", headers)


def caller(request: Request):
    return limited_address(request.client and request.client.host, request.headers.getlist("X-Forwarded-For"))


class Form(BaseModel):
    name: str = Field(max_length=64)
    password: str = Field(max_length=256)


@app.post("/login")
async def login(form: Form, ip: str = Depends(caller)):
    keys = (f"{name}:{ip}" for name in ("attempts", "banned", "offences"))
    wait = await ask(client, "EVAL", BAN, 3, *keys, *ATTEMPTS.quotas[0], *BANS)
    answer("ban", decide_ban(wait))
    name = form.name.strip().lower()
    both = lambda quantity: (*ACCOUNT.words(name, quantity), *ADDRESS.words(ip, quantity))
    answer("login", decide_together(await ask(client, "CL.MTHROTTLE", *both(1)), 2))
    if PASSWORDS.get(name) != form.password:
        raise HTTPException(401, "Wrong name or password")
    # The password is right: the log-in succeeds even if Redis does not answer now.
    given = await ask(client, "CL.MTHROTTLE", *both(-1), *ATTEMPTS.words(ip, -1))
    CALLS.labels("login given back", decide_together(given, 3)[2]).inc()
    return "Welcome"


def decide_together(reply, limits):
    """Returns the decision of CL.MTHROTTLE, which takes from that many limits or from none; without it, refuses."""
    limited, *rows = reply if isinstance(reply, list) and reply else (0, reply)
    if not is_integer(limited) or not all(is_reply(row, 5) for row in rows) or len(rows) != limits:
        return CLOSED
    # The reply is 0 or 1, and 1 if a row is.
    each = [row[0] for row in rows]
    if limited != max(each) or not {*each} <= {0, 1}:
        return CLOSED
    if not limited:
        return 200, {}, "allowed"
    # The wait of a limit that allows the call is -1, as is one that never ends.
    waits = [retry_after for limited, _, _, retry_after, _ in rows if limited]
    if -1 in waits:
        return 403, {}, "limited"
    return 429, {"Retry-After": str(max(waits))}, "limited"


def decide_ban(wait):
    if not is_integer(wait, 0):
        return CLOSED
    return (429, {"Retry-After": seconds(wait, 1000)}, "limited") if wait else (200, {}, "allowed")


async def limited(request: Request, ip: str = Depends(caller), x_api_key: str = Header("")):
    customer = CUSTOMERS.get(x_api_key)
    limit, name = (CUSTOMER, customer) if customer else (VISITOR, ip)
    decision = await throttle(client, limit, name)
    show(decision, request.scope.setdefault("limits", {}))
    answer(limit.name, decision)


@app.get("/items/{number}", dependencies=[Depends(limited)])
async def item(number: int):
    return number


@app.get("/metrics")
async def metrics():
    return Response(generate_latest(), media_type="text/plain; version=0.0.4")
