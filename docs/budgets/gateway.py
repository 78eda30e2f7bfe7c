"""Admission control for an LLM gateway: calls in flight, and requests and tokens a minute, by organisation and user.

To run this file: redis-cli -x FUNCTION LOAD REPLACE < reservation.lua, and then
[REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.3] python3 gateway.py
"""

import contextlib
import numbers
import os
import secrets
import sys
import time
import types
from urllib.parse import quote

import redis

# An organisation's slots for calls in flight, and the milliseconds after which a crashed caller's slot is free again.
PLACES, LEASE = 2, 60_000


class Refused(Exception):
    """The call is refused. The arguments are the reason, and the seconds to wait, or None if it can never pass."""


@contextlib.contextmanager
def admitted(client, organisation, user, estimate):
    """Holds a slot, and charges the estimate. The caller sets the result's `used` to the tokens actually used."""
    if not is_count(estimate):
        raise ValueError(f"estimate must be a whole number of tokens, not {estimate!r}")
    # The hash tag in braces keeps the keys on one node of a cluster. A quoted name contains no brace or colon.
    organisation, user = (quote(name, safe="", errors="surrogatepass") for name in (organisation, user))
    names = [f"call:{secrets.token_hex(8)}", "calls", "requests", f"{user}:requests", "tokens", f"{user}:tokens"]
    keys = [f"{{gate:{organisation}}}:{name}" for name in names]
    # For each limiter, max_burst, count, period and what the call takes. It allows count a minute, and as many at once.
    quotas = [599, 600, 60, 1, 59, 60, 60, 1, 99_999, 100_000, 60, int(estimate), 19_999, 20_000, 60, int(estimate)]
    try:
        limited = repeat(client, "reserve", [6, *keys, LEASE, PLACES, *quotas])
    except (redis.ConnectionError, redis.TimeoutError):
        # Without a reply, refuse and settle the call: an attempt may have taken effect, or may take effect later.
        settle(client, keys, 0, 0)
        raise
    if limited:
        raise Refused("over budget" if limited[0] else "no slot", None if limited[1] < 0 else limited[1])
    # A caller that hangs up pays the estimate. A caller that needs longer than its lease must renew it.
    call = types.SimpleNamespace(used=estimate, renew=lambda: repeat(client, "renew", [2, *keys[:2], LEASE]))
    try:
        yield call
    finally:
        if not is_count(call.used):
            print(f"used must be a whole number of tokens, not {call.used!r}", file=sys.stderr)
            call.used = estimate
        settle(client, keys, 1, int(call.used))


def is_count(number):
    return isinstance(number, numbers.Integral) and not isinstance(number, bool) and 0 <= number < 10**15


def settle(client, keys, requests, tokens):
    try:
        repeat(client, "settle", [6, *keys, requests, requests, tokens, tokens])
    except redis.RedisError as error:
        # Do not lose the model's answer. The estimate stays charged, and the slot is free when the lease ends.
        print(f"not settled: {error}", file=sys.stderr)


def repeat(client, function, words):
    """Calls a function up to three times. With the same arguments, it takes effect only once."""
    lost = None
    for pause in 0.3, 0.3, None:
        try:
            return client.execute_command("FCALL", function, *words)
        except redis.RedisError as error:
            # An attempt without a reply may have taken effect, even if a later one is refused.
            lost = error if isinstance(error, (redis.ConnectionError, redis.TimeoutError)) else lost
            if pause is None or not (lost or isinstance(error, (redis.ReadOnlyError, redis.exceptions.TryAgainError))):
                raise lost or error
            time.sleep(pause)


def ask(client, organisation, user, estimate, model):
    """Returns the model's answer. A refused connection costs only the request; a call that fails costs its estimate."""
    with admitted(client, organisation, user, estimate) as call:
        try:
            answer, call.used = model()
            return answer
        except ConnectionRefusedError:
            call.used = 0
            raise


if __name__ == "__main__":
    # So redis-py never retries, but closes a connection that leads to a replica, as after a failover.
    retries = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    url = os.getenv("REDIS_URL") or "redis://127.0.0.1:6379"
    timeout = float(os.getenv("REDIS_TIMEOUT") or 0.3)
    client = redis.Redis.from_url(url, socket_connect_timeout=timeout, socket_timeout=timeout, **retries)
    for estimate, used in (8_000, 2_000), (8_000, 24_000), (2_000, 2_000), (20_001, 2_000):
        try:
            print(ask(client, "acme", "alice", estimate, lambda: ("an answer", used)))
        except Refused as error:
            print(*error.args)
