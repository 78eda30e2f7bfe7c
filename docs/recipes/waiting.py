"""A queue: a call that cannot pass immediately is told how long to wait for its turn.

To run this file: [REDIS_URL=redis://…] python3 waiting.py
"""

import os
import time

import redis


class TooLong(Exception):
    """The wait would be too long. The argument is the time in milliseconds after which a new call would get a turn."""


class Queue:
    def __init__(self, client, key, max_burst, count, period, longest):
        """Allows `count` calls every `period` ms, and `max_burst + 1` at once. No call waits more than `longest` ms."""
        numbers = {"max_burst": (max_burst, 0), "count": (count, 1), "period": (period, 1), "longest": (longest, 0)}
        for name, (number, least) in numbers.items():
            if type(number) is not int or number < least:
                raise ValueError(f"{name} must be a whole number of {least} or more, not {number!r}")
        # surrogatepass allows any key, even one with a lone surrogate.
        self.client, self.key = client, key.encode(errors="surrogatepass") if isinstance(key, str) else key
        self.max_burst, self.count, self.period, self.longest = max_burst, count, period, longest
        # The number of tokens that come back within the longest wait.
        self.waiting = longest * count // period

    def turn(self, tokens=1):
        """Takes the next turn, for up to `max_burst + 1` tokens. Returns the wait in milliseconds: 0 means now."""
        if type(tokens) is not int or not 1 <= tokens <= self.max_burst + 1:
            raise ValueError(f"a turn is for 1 to {self.max_burst + 1} tokens")
        limited, _, remaining, retry_after, reset_after = self.client.execute_command(
            "CL.PTHROTTLE", self.key, self.max_burst + self.waiting, self.count, self.period, tokens
        )
        if limited:
            raise TooLong(retry_after)
        # A turn comes when at most max_burst + 1 tokens are missing, including the turn's own.
        if remaining >= self.waiting:
            return 0
        # Rounding may add a millisecond, so cap the result at the longest wait.
        return min(reset_after - (self.max_burst + 1) * self.period // self.count, self.longest)

    def wait(self):
        time.sleep(self.turn() / 1000)


if __name__ == "__main__":
    # Do not retry: a call that timed out may have taken its tokens.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "socket_timeout": 1, "socket_connect_timeout": 1}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), **once)
    # The queue allows one call every 100 ms, and two at once. No call waits longer than 300 ms.
    queue = Queue(client, "printer", 1, 1, 100, 300)
    for name in "abcdef":
        try:
            print(name, "waits", queue.turn(), "ms")
        except TooLong as error:
            print(name, "is refused, may ask again after", error, "ms")
