"""The admission of an LLM gateway: calls in flight, and requests and tokens a minute, of an organisation and of a user.

To run this file: redis-cli -x FUNCTION LOAD REPLACE < reservation.lua, and then [REDIS_PORT=6379] python3 gateway.py
"""

import contextlib
import os
import secrets
import sys
import time
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


class Refused(Exception):
    """The gateway does not admit the call. Has the reason, and the seconds to wait, or None if no wait helps."""


class Gateway:
    # An organisation's calls in flight, and the milliseconds after which a call is taken for dead unless it is renewed.
    PLACES, LEASE = 2, 60_000
    # The seconds in which a call of the server is repeated. A try has a third: the client's socket_timeout is less.
    TIME = 1.0
    # Further tries may get an answer after these.
    AGAIN = (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, redis.exceptions.TryAgainError)

    def __init__(self, client):
        self.client = client

    @contextlib.contextmanager
    def admitted(self, organisation, user, estimate):
        """Holds a place, and takes the estimate. The caller sets `used` of the result to what the answer has used."""
        # The hash tag in braces keeps the keys on one node of a cluster. A quoted name has no brace, which would end
        # the tag, and no colon, which would make it two names.
        whole = f"{{gate:{quote(organisation, safe='')}}}"
        own = f"{whole}:{quote(user, safe='')}"
        calls, requests, tokens = f"{whole}:calls", f"{whole}:requests", f"{whole}:tokens"
        keys = [calls, requests, f"{own}:requests", tokens, f"{own}:tokens"]
        # max_burst, count, period, and what the call takes: this many a minute, and as many at once.
        quotas = [599, 600, 60, 1, 59, 60, 60, 1, 99_999, 100_000, 60, "amount", 19_999, 20_000, 60, "amount"]
        call = Call(self, calls, estimate)
        try:
            limited, _, first, *limits = self.repeat(
                "FCALL", "reserve", len(keys), *keys, call.id, self.LEASE, self.PLACES, estimate, "keep", *quotas
            )
        except redis.RedisError:
            # The call may have been reserved, if the answer to an earlier try was lost.
            self.settle([calls, tokens, f"{own}:tokens"], call.id, 0)
            raise
        if limited:
            waits = [wait for refused, _, _, wait, _ in limits if refused]
            if -1 in waits:
                raise Refused("over budget", None)
            raise Refused("over budget" if waits else "no place", max([-(-first // 1000), *waits]))
        try:
            yield call
        finally:
            self.settle([calls, tokens, f"{own}:tokens"], call.id, call.used)

    def settle(self, keys, *words):
        try:
            self.repeat("FCALL", "settle", len(keys), *keys, *words)
        except redis.RedisError as error:
            # The answer is there: do not lose it. The estimate stays charged, and the lease ends by itself.
            print(f"not settled: {error}", file=sys.stderr)

    def repeat(self, *words):
        """Calls the server, in at most three tries. A function that is called again with the same id does no more."""
        begun = time.monotonic()
        for third in 1, 2, 3:
            try:
                return self.client.execute_command(*words)
            except self.AGAIN:
                passed = time.monotonic() - begun
                if third == 3 or passed > self.TIME * 2 / 3:
                    raise
                time.sleep(max(self.TIME * third / 3 - passed, 0))


class Call:
    def __init__(self, gateway, calls, estimate):
        # A caller that hangs up pays the estimate.
        self.gateway, self.calls, self.used, self.id = gateway, calls, estimate, secrets.token_hex(8)

    def renew(self):
        """Begins another lease. Call it after each third of a lease, if answers may take longer than one."""
        return self.gateway.repeat("FCALL", "renew", 1, self.calls, self.id, self.gateway.LEASE)


def ask(gateway, organisation, user, estimate, model):
    """Returns the model's answer. A call that cannot be made costs nothing; one that breaks off costs its estimate."""
    with gateway.admitted(organisation, user, estimate) as call:
        try:
            answer, call.used = model()
            return answer
        except ConnectionRefusedError:
            # The only ConnectionError that comes before the model has worked; a caller who hangs up is a
            # BrokenPipeError.
            call.used = 0
            raise


def failing():
    raise ConnectionRefusedError("the model is gone")


if __name__ == "__main__":
    # The gateway repeats calls itself. A connection that leads to a replica, after a failover behind one address, is
    # closed.
    once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    times = {"socket_timeout": 0.3, "socket_connect_timeout": 0.3}
    client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)), **times, **once)
    gateway = Gateway(client)
    for estimate, model in [
        (8_000, lambda: ("short", 2_000)),
        (8_000, failing),
        (8_000, lambda: ("long", 24_000)),
        (2_000, lambda: ("never asked", 0)),
        (20_001, lambda: ("never asked", 0)),
    ]:
        try:
            print(ask(gateway, "acme", "alice", estimate, model))
        except Refused as error:
            print(*error.args)
        except ConnectionRefusedError as error:
            print("failed:", error)
    with gateway.admitted("acme", "bob", 500), gateway.admitted("acme", "bob", 500) as second:
        try:
            with gateway.admitted("acme", "carol", 500):
                print("never")
        except Refused as error:
            print(*error.args)
        print("another lease:", second.renew())
