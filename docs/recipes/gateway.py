"""The admission of a gateway, by calls in flight, requests a minute and tokens a minute.

To run this file: [REDIS_PORT=6379] python3 gateway.py
"""

import contextlib
import os
import secrets
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


class Refused(Exception):
    """The gateway does not admit the call. Has the seconds after which to try again, or None if no wait helps."""


class Gateway:
    # The most calls in flight, and the milliseconds after which a call no longer counts: end each call before that.
    IN_FLIGHT, LEASE = 2, 60_000
    # max_burst, count, period.
    REQUESTS, TOKENS = (59, 60, 60), (19_999, 20_000, 60)

    def __init__(self, client):
        self.client = client

    @contextlib.contextmanager
    def admitted(self, user, estimate):
        """Holds a place, and takes the estimate. The caller sets `used` of the result to what the answer has used."""
        if estimate < 0:
            raise ValueError("an estimate below zero would give tokens back")
        # The hash tag in braces keeps the keys on one node of a cluster. A tag that began with a brace would be none.
        key, name = f"{{gate:{user}}}", secrets.token_hex(8)
        try:
            no_place, _, _, retry_after = self.client.fcall(
                "in_flight_acquire", 1, f"{key}:calls", self.IN_FLIGHT, self.LEASE, name
            )
        except redis.RedisError:
            # The place may have been taken, although there was no answer.
            self.settle("FCALL", "in_flight_release", 1, f"{key}:calls", name)
            raise
        if no_place:
            raise Refused(-(-retry_after // 1000))
        try:
            limits = [f"{key}:requests", *self.REQUESTS, 1, f"{key}:tokens", *self.TOKENS, estimate]
            limited, *answers = self.client.execute_command("CL.MTHROTTLE", *limits)
            if limited:
                waits = [wait for refused, _, _, wait, _ in answers if refused]
                raise Refused(None if -1 in waits else max(waits))
            call = Call(estimate)
            try:
                yield call
            finally:
                self.settle("CL.CHARGE", f"{key}:tokens", *self.TOKENS, call.used - estimate)
        finally:
            self.settle("FCALL", "in_flight_release", 1, f"{key}:calls", name)

    def settle(self, *words):
        try:
            self.client.execute_command(*words)
        except redis.RedisError as error:
            # The answer is there: do not lose it. The estimate stays charged, and the lease ends by itself.
            print(f"not settled: {error}", file=sys.stderr)


class Call:
    def __init__(self, estimate):
        # A caller that hangs up pays the estimate.
        self.used = estimate


if __name__ == "__main__":
    # A repeated call would take twice, so there are no retries. The listed error closes the connection: after a failover
    # behind one address, it leads to a replica.
    once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)), socket_timeout=1, **once)
    gateway = Gateway(client)
    with gateway.admitted("alice", 8_000) as first, gateway.admitted("alice", 8_000) as second:
        try:
            with gateway.admitted("alice", 1):
                print("never")
        except Refused as error:
            print("two in flight, wait at most", error, "s")
        first.used, second.used = 9_000, 7_000
    try:
        with gateway.admitted("alice", 8_000):
            print("never")
    except Refused as error:
        print("over budget, wait", error, "s")
    with gateway.admitted("alice", 4_000) as third:
        third.used = 1_000
        print("a place is free, and so are 4,000 tokens")
