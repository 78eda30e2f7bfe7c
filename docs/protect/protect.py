"""A log-in form with two limits and a ban. docs/protect.md explains it step by step.

To run this file, next to fastapi_app.py, redis_asyncio.py, redis_py.py and ban.lua:
[REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] uvicorn --no-proxy-headers protect:app
"""

import unicodedata
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from fastapi_app import address, lifespan
from redis_asyncio import answer, ask

# Stands in for your own table of users.
PASSWORDS = {"alice": "correct horse", "bob": "battery staple"}
# max_burst, count, and period in seconds.
ACCOUNT, ADDRESS, ATTEMPTS = (4, 20, 3600), (19, 60, 3600), (49, 50, 86400)
# The seconds after which a ban is forgotten, and the length in seconds of the first ban and of each later one.
BANS = (86400, 3600, 86400)
BAN = Path(__file__).with_name("ban.lua").read_text()

app = FastAPI(lifespan=lifespan)


class Form(BaseModel):
    name: str = Field(max_length=64)
    password: str = Field(max_length=256)


def refusal(status, headers):
    return HTTPException(status, "Try again later", {**headers, "Cache-Control": "no-store"})


def normalized(name):
    """Returns the name as the table of users has it, whatever the case and width of its letters."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


@app.post("/login")
async def login(form: Form, request: Request):
    client, ip, name = request.app.state.redis, address(request), normalized(form.name)
    keys = (f"{key}:{ip}" for key in ("attempts", "banned", "offences"))
    wait = await ask(client, int, "EVAL", BAN, 3, *keys, *ATTEMPTS, *BANS)
    if wait is None:
        raise refusal(*answer(None))
    if wait:
        # Milliseconds, rounded up to seconds.
        raise refusal(429, {"Retry-After": str(-(-wait // 1000))})
    both = lambda quantity: (f"account:{name}", *ACCOUNT, quantity, f"address:{ip}", *ADDRESS, quantity)
    reply = await ask(client, [int, [int] * 5, [int] * 5], "CL.MTHROTTLE", *both(1))
    # The limit with the longer wait decides.
    status, headers = answer(reply and max(reply[1:], key=lambda row: (row[0], row[3])))
    if status != 200:
        raise refusal(status, headers)
    if PASSWORDS.get(name) != form.password:
        raise HTTPException(401, "Wrong name or password")
    # The password is right: the log-in succeeds even if Redis does not answer now.
    await ask(client, [int] + 3 * [[int] * 5], "CL.MTHROTTLE", *both(-1), f"attempts:{ip}", *ATTEMPTS, -1)
    return "Welcome"
