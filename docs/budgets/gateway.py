"""Limits for an LLM gateway: calls in flight, and requests and tokens a minute, for each organisation and user.

To run this file, next to reservation.lua: [REDIS_URL=redis://127.0.0.1:6379] python3 gateway.py
"""

import asyncio
import contextlib
import logging
import os
import secrets
import types
from pathlib import Path
from urllib.parse import quote

import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry

# An organisation's slots for calls in flight, and the milliseconds after which a crashed caller's slot is free again.
SLOTS, LEASE = 2, 60_000
FUNCTIONS = Path(__file__).with_name("reservation.lua").read_text()
LOG = logging.getLogger("gateway")
# Calls that are being settled. Wait for them before you close the client.
SETTLING = set()


class Refused(Exception):
    """The call is refused. The arguments are the reason, and the seconds to wait, or None if it can never pass."""


class Unavailable(Exception):
    """Redis did not decide, so do not call the model. With the timeouts below, this takes at most two seconds."""


@contextlib.asynccontextmanager
async def admitted(client, organisation, user, estimate):
    """Holds a slot, and charges the estimate. The caller sets the result's `used` to the tokens used so far."""
    if not is_count(estimate):
        raise ValueError(f"estimate must be a whole number of tokens, not {estimate!r}")
    # The hash tag in braces keeps the keys on one node of a cluster. A quoted name contains no brace or colon.
    organisation, user = (quote(name, safe="", errors="surrogatepass") for name in (organisation, user))
    names = [f"call:{secrets.token_hex(8)}", "calls", "requests", f"{user}:requests", "tokens", f"{user}:tokens"]
    keys = [f"{{gate:{organisation}}}:{name}" for name in names]
    # For each limiter, max_burst, count, period and what the call takes. It allows count a minute, and as many at once.
    quotas = [599, 600, 60, 1, 59, 60, 60, 1, 99_999, 100_000, 60, estimate, 19_999, 20_000, 60, estimate]
    try:
        limited = await repeat(client, "reserve", 6, *keys, LEASE, SLOTS, *quotas)
    except (Unavailable, asyncio.CancelledError):
        # Settle the call: an attempt may have taken effect, or may take effect later.
        settle(client, keys, 0, 0)
        raise
    if limited:
        raise Refused("over budget" if limited[0] else "no slot", None if limited[1] < 0 else limited[1])
    call = types.SimpleNamespace(used=estimate)
    renewing = asyncio.create_task(renew(client, keys))
    try:
        yield call
    finally:
        renewing.cancel()
        if not is_count(call.used):
            LOG.error("used must be a whole number of tokens, not %r", call.used)
            call.used = estimate
        # If the caller hangs up, this task is cancelled, but the call is settled nevertheless.
        await asyncio.shield(settle(client, keys, 1, call.used))


def is_count(number):
    return type(number) is int and 0 <= number < 10**15


async def renew(client, keys):
    """Renews the lease of a call's slot until the call ends."""
    while True:
        await asyncio.sleep(LEASE / 3000)
        with contextlib.suppress(Unavailable):
            await repeat(client, "renew", 2, *keys[:2], LEASE)


def settle(client, keys, requests, tokens):
    """Starts a task that settles the call, and returns it."""

    async def settling():
        with contextlib.suppress(Unavailable):
            await repeat(client, "settle", 6, *keys, requests, requests, tokens, tokens)

    task = asyncio.create_task(settling())
    SETTLING.add(task)
    task.add_done_callback(SETTLING.discard)
    return task


async def repeat(client, function, *words):
    """Calls a function up to three times. With the same arguments, it takes effect only once."""
    for pause in 0.1, 0.1, 0:
        try:
            return await client.execute_command("FCALL", function, *words)
        except redis.RedisError as error:
            failure = error
        if "Function not found" in str(failure):
            # The server has restarted without persistence.
            with contextlib.suppress(redis.RedisError):
                await client.execute_command("FUNCTION LOAD", "REPLACE", FUNCTIONS)
        else:
            await asyncio.sleep(pause)
    LOG.error("Redis did not %s: %s", function, failure)
    raise Unavailable(str(failure)) from failure


async def ask(client, organisation, user, estimate, model):
    """Yields the parts of the model's answer. If the stream ends early, the call costs the tokens used so far."""
    async with admitted(client, organisation, user, estimate) as call:
        try:
            async for part, call.used in model():
                yield part
        except ConnectionRefusedError:
            # The model was not called.
            call.used = 0
            raise


async def model(used):
    """Stands in for a model. With each part of the answer, it tells how many tokens the call has used so far."""
    yield "an", used // 2
    yield " answer", used


async def main():
    # redis-py itself never retries, but closes a connection that leads to a replica, as after a failover.
    once = {"retry": Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    # In seconds, for a free connection, a new one, and the reply.
    times = {"timeout": 0.2, "socket_connect_timeout": 0.2, "socket_timeout": 0.2}
    pool = BlockingConnectionPool.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), **times, **once)
    async with Redis(connection_pool=pool) as client:
        # The reader of the second answer hangs up after its first part.
        for estimate, used, read in (8_000, 2_000, 2), (8_000, 24_000, 1), (8_000, 2_000, 2), (20_001, 2_000, 2):
            try:
                async with contextlib.aclosing(ask(client, "acme", "alice", estimate, lambda: model(used))) as answer:
                    print("".join([await anext(answer) for _ in range(read)]))
            except Refused as refusal:
                print(*refusal.args)
    await pool.disconnect()


if __name__ == "__main__":
    asyncio.run(main())
