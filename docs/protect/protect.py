"""A log-in form with two limits and a ban. docs/protect.md explains the program step by step.

To run this file in a folder with ban.lua: [REDIS_URL=redis://127.0.0.1:6379] uvicorn --no-proxy-headers protect:app
"""

import contextlib
import ipaddress
import logging
import os
import unicodedata
from pathlib import Path

import redis
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry

# Replace these two with your own tables. The first has the account's number for each name that a user may type, and the
# second each account's password.
ACCOUNTS = {"alice": 1, "alice@example.com": 1, "bob": 2}
PASSWORDS = {1: "correct horse", 2: "battery staple"}
# The quotas for an account, for an address, and for an address's wrong passwords: max_burst, count, and the period in
# seconds.
ACCOUNT, ADDRESS, WRONG = (4, 20, 3600), (59, 60, 3600), (49, 50, 86400)
# The time after which a ban is forgotten, the length of the first ban, and the length of each later one, in seconds.
BANS = (86400, 3600, 86400)
BAN = Path(__file__).with_name("ban.lua").read_text()
URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
# The timeouts, in seconds, for getting a free connection, for connecting, and for the reply. Parameters in REDIS_URL,
# such as ?timeout=1, override these.
TIMES = {"timeout": 0.1, "socket_connect_timeout": 0.1, "socket_timeout": 0.1}
# Do not retry: a call that timed out may have taken its tokens. After a READONLY error, close the connection, which
# leads to a replica. Use RESP2, because with RESP3, redis-py 8 loses a call if the server has closed the idle
# connection.
ONCE = {"retry": Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError], "protocol": 2}
LOG = logging.getLogger("login")


@contextlib.asynccontextmanager
async def lifespan(app):
    pool = BlockingConnectionPool.from_url(URL, max_connections=1000, **TIMES, **ONCE)
    async with Redis.from_pool(pool) as app.state.redis:
        yield


app = FastAPI(lifespan=lifespan)


class Form(BaseModel):
    name: str = Field(max_length=64)
    password: str = Field(max_length=256)


def refusal(seconds):
    return HTTPException(429, "Try again later", {"Retry-After": str(seconds), "Cache-Control": "no-store"})


@app.exception_handler(redis.RedisError)
async def unavailable(request, error):
    """Fails closed: while Redis does not answer, no password is checked."""
    LOG.error("Redis did not decide: %s", error)
    return JSONResponse("Try again later", 503, {"Retry-After": "1", "Cache-Control": "no-store"})


def address(request):
    """Returns the caller's IPv4 address, or for IPv6 the /64 network, because each customer gets a whole /64.

    Callers without a valid address, such as those behind a Unix socket, share the name "unknown".
    """
    try:
        ip = ipaddress.ip_address(request.client.host if request.client else "")
    except ValueError:
        return "unknown"
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return str(ip if ip.version == 4 else ipaddress.ip_network((ip, 64), strict=False))


def normalized(name):
    """Returns the name in the form used in ACCOUNTS, whatever the case and width of its letters."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


@app.post("/login")
async def login(form: Form, request: Request):
    client, ip, name = request.app.state.redis, address(request), normalized(form.name)
    banned = await client.pttl(f"banned:{ip}")
    if banned != -2:
        # Convert milliseconds to seconds, rounded up.
        raise refusal(max(-(-banned // 1000), 1))
    number = ACCOUNTS.get(name)
    account = f"account:{number}" if number else f"unknown:{name}"
    both = lambda quantity: (account, *ACCOUNT, quantity, f"address:{ip}", *ADDRESS, quantity)
    limited, *rows = await client.execute_command("CL.MTHROTTLE", *both(1))
    if limited:
        raise refusal(max(retry_after for _, _, _, retry_after, _ in rows))
    is_right = number and PASSWORDS[number] == form.password
    try:
        if is_right:
            await client.execute_command("CL.MTHROTTLE", *both(-1))
        else:
            keys = (f"{key}:{ip}" for key in ("wrong", "banned", "offences"))
            await client.eval(BAN, 3, *keys, *WRONG, *BANS)
    except redis.RedisError as error:
        # The password has already been checked, so respond as if the count had succeeded.
        LOG.error("Redis did not count: %s", error)
    if not is_right:
        raise HTTPException(401, "Wrong name or password")
    return "Welcome"
