"""Shadow mode: a limit that counts what it would refuse, and refuses nothing until it is enforced.

To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 shadow.py
"""

import collections
import os
import sys

import redis


class Limit:
    def __init__(self, client, name, quota, enforced):
        if ":" in name or name == "shadow":
            raise ValueError(f"{name} may not name a limit: its keys would be another limit's")
        if [type(number) for number in quota] != [int] * 3:
            raise ValueError(f"{name}: {quota} is not a whole max_burst, count and period")
        self.client, self.name, self.quota, self.enforced = client, name, quota, enforced
        # Put a counter of your monitoring here.
        self.counts = collections.Counter()

    def allows(self, caller):
        # Shadow mode has a key of its own: a limiter is full when its limit is first enforced.
        key = f"{self.name}:{caller}" if self.enforced else f"shadow:{self.name}:{caller}"
        # A name may have half of a surrogate pair.
        key = key.encode(errors="surrogatepass")
        try:
            limited = self.client.execute_command("CL.THROTTLE", key, *self.quota)[0]
        except Exception as error:
            # A shadow stops no request, whatever goes wrong.
            if self.enforced:
                raise
            print(f"not counted: {error}", file=sys.stderr)
            self.counts["error"] += 1
            return True
        self.counts["limited" if limited else "allowed"] += 1
        return not (limited and self.enforced)


if __name__ == "__main__":
    # A repeated call would take twice, so there are no retries. The listed error closes the connection: after a
    # failover behind one address, it leads to a replica.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    timeout = float(os.environ.get("REDIS_TIMEOUT") or 0.1)
    times = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379", **times, **once)
    for enforced in False, True:
        limit = Limit(client, "search", (15, 30, 60), enforced)
        passed = sum(limit.allows("alice") for _ in range(20))
        print("enforced:" if enforced else "shadow:", passed, "of 20 pass,", dict(limit.counts))
