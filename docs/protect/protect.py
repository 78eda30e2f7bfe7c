"""A log-in form and an API, protected. docs/protect.md explains it step by step.

To run this file, beside fastapi_app.py, redis_asyncio.py and ban.lua:
[REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] uvicorn --no-proxy-headers protect:app
"""

from pathlib import Path

from fastapi import Depends, Header, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from limits import parse, storage, strategies
from prometheus_client import Counter, generate_latest
from pydantic import BaseModel, Field

from fastapi_app import LimitedAPI, lifespan, network, shared
from redis_asyncio import answer, ask, throttle

# Stand-ins for your own tables of users and customers.
PASSWORDS = {"alice": "correct horse", "bob": "battery staple"}
CUSTOMERS = {"secret-of-acme": "acme"}
# max_burst, count and period in seconds; of several quotas, the quantity stands behind the first.
ACCOUNT, ADDRESS, ATTEMPTS = (4, 20, 3600), (19, 60, 3600), (49, 50, 86400)
CUSTOMER, VISITOR = (9, 10, 1, 1, 999, 1000, 86400), (4, 5, 60, 1, 29, 30, 86400)
# While Redis does not answer, a log-in is refused, and this process passes five requests a minute of each caller.
MEMORY, ALONE = storage.MemoryStorage(), parse("5/minute")
OWN = strategies.MovingWindowRateLimiter(MEMORY)
# The seconds after which a ban is forgiven; those of the first ban, and those of each further one.
BANS = (86400, 3600, 86400)
BAN = Path(__file__).with_name("ban.lua").read_text()
CALLS = Counter("limit_calls", "Calls of a limit, by how they ended", ["limit", "result"])
# Each count begins at 0: Prometheus would not see a count that begins with the first outage.
for name in "ban", "login", "login given back", "customer", "visitor":
    for result in "allowed", "limited", "unanswered":
        CALLS.labels(name, result)
# The most bytes of a body. No form is larger, even if a password's letters are escaped.
LARGEST = 4096


class Bounded:
    """Refuses a large body by its length, or else as its bytes come, also in chunks."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        stated = dict(scope.get("headers", [])).get(b"content-length", b"0")
        left = LARGEST if int(stated) <= LARGEST else -1

        async def counted():
            nonlocal left
            message = await receive() if left >= 0 else {}
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, "The request is too large", {"Connection": "close"})
            return message

        await self.app(scope, counted, send)


app = LimitedAPI()
app.router.lifespan_context = lifespan
app.add_middleware(Bounded)


@app.exception_handler(RequestValidationError)
async def invalid(request, error):
    """Refuses a form without repeating its contents, which may be a password, or no text."""
    return Response("The request is not as it should be", 422)


def conclude(name, reply, decision):
    """Counts a call, and refuses the request if it was not allowed."""
    status, headers = decision
    CALLS.labels(name, "unanswered" if reply is None else "allowed" if status == 200 else "limited").inc()
    if status != 200:
        raise HTTPException(status, "Try again later", {**headers, "Cache-Control": "no-store"})


class Form(BaseModel):
    name: str = Field(max_length=64)
    password: str = Field(max_length=256)


@app.post("/login")
async def login(form: Form, request: Request):
    client, ip = shared["redis"], network(request.client.host)
    keys = (f"{name}:{ip}" for name in ("attempts", "banned", "offences"))
    wait = await ask(client, int, "EVAL", BAN, 3, *keys, *ATTEMPTS, *BANS)
    # Milliseconds, and 0 if there is no ban.
    banned = 429, {"Retry-After": str(-(-(wait or 0) // 1000))}
    conclude("ban", wait, answer(None) if wait is None else banned if wait else (200, {}))
    name = form.name.strip().lower()
    both = lambda quantity: (f"account:{name}", *ACCOUNT, quantity, f"address:{ip}", *ADDRESS, quantity)
    reply = await ask(client, [int, [int] * 5, [int] * 5], "CL.MTHROTTLE", *both(1))
    # The limit that refuses for longer decides.
    conclude("login", reply, answer(reply and max(reply[1:], key=lambda row: (row[0], row[3]))))
    if PASSWORDS.get(name) != form.password:
        raise HTTPException(401, "Wrong name or password")
    # The password is right: the log-in succeeds even if Redis does not answer now.
    given = await ask(client, [int] + 3 * [[int] * 5], "CL.MTHROTTLE", *both(-1), f"attempts:{ip}", *ATTEMPTS, -1)
    CALLS.labels("login given back", "unanswered" if given is None else "allowed").inc()
    return "Welcome"


async def limited(request: Request, x_api_key: str = Header("")):
    customer = CUSTOMERS.get(x_api_key)
    name, quota = ("customer", CUSTOMER) if customer else ("visitor", VISITOR)
    caller = customer or network(request.client.host)
    reply = await throttle(shared["redis"], f"{name}:{caller}", *quota)
    status, headers = answer(reply)
    if reply is None and OWN.hit(ALONE, name, caller):
        status, headers = 200, {}
    request.scope["limit_headers"].update(headers)
    conclude(name, reply, (status, headers))


@app.get("/items/{number}", dependencies=[Depends(limited)])
async def item(number: int):
    return number


@app.get("/metrics")
async def metrics():
    return Response(generate_latest(), media_type="text/plain; version=0.0.4")
