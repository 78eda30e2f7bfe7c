"""Rate limiting with redis-py and asyncio.

Open the pool before the first call: `await pool.open()`.
To run this file: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] python3 redis_asyncio.py
"""

import asyncio
import itertools
import operator
import os
import sys
import time

import redis
import redis.asyncio

# The longest time that a call waits for the reply, in seconds.
TIMEOUT = float(os.environ.get("TIMEOUT", 0.1))
# The most calls of a process at once, each on its own connection, and how long a further call waits for its turn.
CONNECTIONS, WAIT = 20, 1


class Busy(Exception):
    """All connections stayed in use: the process makes too many calls at once, while the server may be well."""


def is_silence(error):
    """Tells whether an error is no answer of the server. redis-py counts some answers among the lost connections."""
    answers = redis.AuthenticationError, redis.BusyLoadingError
    return isinstance(error, (redis.ConnectionError, redis.TimeoutError)) and not isinstance(error, answers)


class Pool:
    """Connections for all tasks. redis-py's own pools raise the same error if they are full or there is no server."""

    def __init__(self, port=os.environ.get("REDIS_PORT", 6379), **settings):
        self.turns = asyncio.Semaphore(CONNECTIONS)
        # How many calls in a row got no answer, and when the last call was made.
        self.unanswered, self.asked = 0, 0
        if redis.VERSION >= (5,):
            # redis-py 8.1 with protocol 3 does not notice that the server has closed a connection.
            settings["protocol"] = 2
        # redis-py itself would repeat a call without a reply, and take twice.
        self.client = redis.asyncio.Redis(port=int(port), retry=None, **settings)

    async def open(self):
        """Makes all connections. Await this at the start, before there are requests."""
        answers = await asyncio.gather(*(self.call("PING") for _ in range(CONNECTIONS)), return_exceptions=True)
        for error in {str(answer) for answer in answers if isinstance(answer, Exception)}:
            print(f"no server yet: {error}", file=sys.stderr)

    async def call(self, *words):
        """Returns the server's answer."""
        try:
            await asyncio.wait_for(self.turns.acquire(), WAIT)
        except asyncio.TimeoutError:
            if self.unanswered < CONNECTIONS:
                raise Busy from None
            raise redis.TimeoutError("the server is silent") from None
        # A server that has answered none of these calls is silent: only one call per TIMEOUT still asks it.
        if self.unanswered >= CONNECTIONS and time.monotonic() < self.asked + TIMEOUT:
            self.turns.release()
            raise redis.TimeoutError("the server is silent")
        self.asked = time.monotonic()
        call = asyncio.ensure_future(self.client.execute_command(*words))
        call.add_done_callback(lambda _: self.turns.release())
        try:
            # Wait in small steps: a late event loop then reads an answer that has arrived, before the steps end.
            for _ in range(20):
                await asyncio.wait({call}, timeout=TIMEOUT / 20)
                if call.done():
                    answer = call.result()
                    self.unanswered = 0
                    return answer
            raise redis.TimeoutError("no answer in time")
        except redis.RedisError as error:
            self.unanswered = self.unanswered + 1 if is_silence(error) else 0
            if is_silence(error) or isinstance(error, redis.ReadOnlyError):
                # The other connections were most likely lost too, or lead to a server that has become a replica.
                await self.client.connection_pool.disconnect(inuse_connections=False)
            raise
        finally:
            # Cancelling the call closes its connection, on which a late answer may still come.
            call.cancel()


async def throttle(pool, key, quota, *others, quantity=1, fail):
    """Makes a call, and returns the status and the headers to answer an HTTP request with.

    A quota is max_burst, count and period. A call without an answer is allowed if fail is "open", and refused if it is
    "closed". A quantity that is no number of tokens is an error, whatever fail says.
    """
    if not 0 <= operator.index(quantity) < 2**63:
        raise ValueError("a quantity is from 0 to 2^63 - 1: a negative one would give tokens back")
    try:
        answer = await pool.call("CL.THROTTLE", key, *quota, quantity, *itertools.chain(*others))
    except Busy:
        return 503, {"Retry-After": "1"}
    except (redis.RedisError, OSError) as error:
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


async def main():
    pool = Pool()
    await pool.open()
    fail = os.environ.get("FAIL", "open")
    # The limiter allows three at once and one a minute; the last call asks for four tokens.
    for quantity in 1, 1, 1, 1, 4:
        status, headers = await throttle(pool, "user123", (2, 1, 60), quantity=quantity, fail=fail)
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))


if __name__ == "__main__":
    asyncio.run(main())
