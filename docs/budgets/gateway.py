"""Limits for an LLM gateway. Each organisation has limits on calls in flight, and on requests and tokens a minute. Each
user has limits on requests and tokens a minute.

To run this file in a folder with reservation.lua: [REDIS_URL=redis://127.0.0.1:6379] python3 gateway.py
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

# SLOTS is the number of calls that an organisation may have in flight. If a caller crashes, its slot becomes free after
# LEASE milliseconds.
SLOTS, LEASE = 2, 60_000
FUNCTIONS = Path(__file__).with_name("reservation.lua").read_text()
LOG = logging.getLogger("gateway")
# The tasks that settle calls. Wait for these tasks before you close the client.
SETTLING = set()


class Refused(Exception):
    """The call is refused. The arguments are the reason, and the seconds to wait (None if the call can never pass)."""


class Unavailable(Exception):
    """Redis did not decide, so do not call the model. With the timeouts in `main`, this takes at most two seconds."""


@contextlib.asynccontextmanager
async def admitted(client, organisation, user, estimate):
    """Holds a slot, and charges the estimate. Yields an object: set its `used` to the number of tokens used so far."""
    if not is_count(estimate):
        raise ValueError(f"estimate must be a whole number of tokens, not {estimate!r}")
    # The hash tag in braces keeps the keys on one node of a cluster. Quoting removes braces and colons from the names.
    organisation, user = (quote(name, safe="", errors="surrogatepass") for name in (organisation, user))
    names = [f"call:{secrets.token_hex(8)}", "calls", "requests", f"{user}:requests", "tokens", f"{user}:tokens"]
    keys = [f"{{gate:{organisation}}}:{name}" for name in names]
    # For each limiter: max_burst, count, the period in seconds, and what the call takes. Each limit is `count` a
    # minute, and a minute's worth may be used at once.
    quotas = [599, 600, 60, 1, 59, 60, 60, 1, 99_999, 100_000, 60, estimate, 19_999, 20_000, 60, estimate]
    try:
        limited = await repeat(client, "reserve", 6, *keys, LEASE, SLOTS, *quotas)
    except (Unavailable, asyncio.CancelledError):
        # Settle the call, because the reservation may have taken effect, or may still take effect later.
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
        # If the caller hangs up, this task is cancelled. `shield` lets the call be settled nevertheless.
        await asyncio.shield(settle(client, keys, 1, call.used))


def is_count(number):
    return type(number) is int and 0 <= number < 10**15


async def renew(client, keys):
    """Renews the lease on the call's slot until the call ends and this task is cancelled."""
    while True:
        await asyncio.sleep(LEASE / 3000)
        with contextlib.suppress(Unavailable):
            await repeat(client, "renew", 2, *keys[:2], LEASE)


def settle(client, keys, requests, tokens):
    """Starts a task that settles the call. Returns the task."""

    async def settling():
        with contextlib.suppress(Unavailable):
            await repeat(client, "settle", 6, *keys, requests, requests, tokens, tokens)

    task = asyncio.create_task(settling())
    SETTLING.add(task)
    task.add_done_callback(SETTLING.discard)
    return task


async def repeat(client, function, *words):
    """Calls a Redis function up to three times. This is safe, because a repeated call takes effect only once."""
    for pause in 0.1, 0.1, 0:
        try:
            return await client.execute_command("FCALL", function, *words)
        except redis.RedisError as error:
            failure = error
        if "Function not found" in str(failure):
            # The server has lost its functions, for example in a restart without persistence, so load them again.
            with contextlib.suppress(redis.RedisError):
                await client.execute_command("FUNCTION LOAD", "REPLACE", FUNCTIONS)
        else:
            await asyncio.sleep(pause)
    LOG.error("Redis did not %s: %s", function, failure)
    raise Unavailable(str(failure)) from failure


async def ask(client, organisation, user, estimate, model):
    """Yields the parts of the model's answer. If the stream ends early, only the tokens used so far are charged."""
    async with admitted(client, organisation, user, estimate) as call:
        try:
            async for part, call.used in model():
                yield part
        except ConnectionRefusedError:
            # The request has not reached the model, so it has used no tokens.
            call.used = 0
            raise


async def model(used):
    """Stands in for a model. Yields the parts of an answer, each with the number of tokens used so far."""
    yield "an", used // 2
    yield " answer", used


async def main():
    # Turn off redis-py's own retries. After a READONLY error, close the connection, because it leads to a replica.
    once = {"retry": Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    # The timeouts, in seconds, for getting a free connection, for connecting, and for the reply.
    times = {"timeout": 0.2, "socket_connect_timeout": 0.2, "socket_timeout": 0.2}
    pool = BlockingConnectionPool.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), **times, **once)
    async with Redis(connection_pool=pool) as client:
        # The reader of the second answer hangs up after the answer's first part.
        for estimate, used, read in (8_000, 2_000, 2), (8_000, 24_000, 1), (8_000, 2_000, 2), (20_001, 2_000, 2):
            try:
                async with contextlib.aclosing(ask(client, "acme", "alice", estimate, lambda: model(used))) as answer:
                    print("".join([await anext(answer) for _ in range(read)]))
            except Refused as refusal:
                print(*refusal.args)
    await pool.disconnect()


if __name__ == "__main__":
    asyncio.run(main())
