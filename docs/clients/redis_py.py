"""Rate limiting with redis-py. To run this: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] python3 redis_py.py"""

import itertools
import operator
import os
import queue
import sys
import time

import redis

# The longest time that a call waits for the reply, in seconds.
TIMEOUT = float(os.environ.get("TIMEOUT", 0.1))
# The connections of a process, each for one call at a time, and how long a call waits for a free one.
CONNECTIONS, WAIT = 20, 1


class Busy(Exception):
    """All connections stayed in use: the process makes too many calls at once, while the server may be well."""


def is_silence(error):
    """Tells whether an error is no answer of the server. redis-py counts some answers among the lost connections."""
    answers = redis.AuthenticationError, redis.BusyLoadingError
    return isinstance(error, (redis.ConnectionError, redis.TimeoutError)) and not isinstance(error, answers)


class Pool:
    """Connections for all threads. redis-py's own pools raise the same error if they are full or there is no server."""

    def __init__(self, port=os.environ.get("REDIS_PORT", 6379), **settings):
        # redis-py itself would repeat a call without a reply, and take twice.
        settings = {"socket_connect_timeout": TIMEOUT, "socket_timeout": TIMEOUT, "retry": None, **settings}
        self.clients = [redis.Redis(port=int(port), **settings) for _ in range(CONNECTIONS)]
        try:
            for client in self.clients:
                client.ping()
        except redis.RedisError as error:
            print(f"no server yet: {error}", file=sys.stderr)
        self.free = queue.SimpleQueue()
        for client in self.clients:
            self.free.put(client)
        # How many calls in a row got no answer, and when the last call was made.
        self.unanswered, self.asked = 0, 0

    def call(self, *words):
        """Returns the server's answer."""
        try:
            client = self.free.get(timeout=WAIT)
        except queue.Empty:
            if self.unanswered < CONNECTIONS:
                raise Busy from None
            raise redis.TimeoutError("the server is silent") from None
        try:
            # A server that has answered none of these calls is silent: only one call per TIMEOUT still asks it.
            if self.unanswered >= CONNECTIONS and time.monotonic() < self.asked + TIMEOUT:
                raise redis.TimeoutError("the server is silent")
            self.asked = time.monotonic()
            return self.ask(client, words)
        finally:
            self.free.put(client)

    def ask(self, client, words):
        try:
            answer = client.execute_command(*words)
            self.unanswered = 0
            return answer
        except redis.RedisError as error:
            self.unanswered = self.unanswered + 1 if is_silence(error) else 0
            if is_silence(error) or isinstance(error, redis.ReadOnlyError):
                # The other connections were most likely lost too, or lead to a server that has become a replica.
                for other in self.clients:
                    other.connection_pool.disconnect(inuse_connections=False)
            raise


def throttle(pool, key, quota, *others, quantity=1, fail):
    """Makes a call, and returns the status and the headers to answer an HTTP request with.

    A quota is max_burst, count and period. A call without an answer is allowed if fail is "open", and refused if it is
    "closed". A quantity that is no number of tokens is an error, whatever fail says.
    """
    if not 0 <= operator.index(quantity) < 2**63:
        raise ValueError("a quantity is from 0 to 2^63 - 1: a negative one would give tokens back")
    try:
        answer = pool.call("CL.THROTTLE", key, *quota, quantity, *itertools.chain(*others))
    except Busy:
        return 503, {"Retry-After": "1"}
    except redis.RedisError as error:
        print(f"no limits, failing {fail}: {error}", file=sys.stderr)
        return (200, {}) if fail == "open" else (503, {"Retry-After": "1"})
    limited, limit, remaining, retry_after, reset_after, *deciding = answer
    headers = {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": str(reset_after),
    }
    # The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
    if retry_after >= 0:
        headers["Retry-After"] = str(retry_after)
    # A call by several quotas also gets the number of the quota that these integers are about.
    if deciding:
        headers["X-RateLimit-Quota"] = str(deciding[0])
    if limited:
        return 413 if retry_after < 0 else 429, headers
    return 200, headers


if __name__ == "__main__":
    pool = Pool()
    fail = os.environ.get("FAIL", "open")
    # The limiter allows three at once and one a minute; the last call asks for four tokens.
    for quantity in 1, 1, 1, 1, 4:
        status, headers = throttle(pool, "user123", (2, 1, 60), quantity=quantity, fail=fail)
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))
