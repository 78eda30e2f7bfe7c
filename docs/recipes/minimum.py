"""A guaranteed minimum for each tenant of a pool. The rest of the pool is lent to any tenant that needs more.

To run this file: [REDIS_URL=redis://…] python3 minimum.py
"""

import os
from pathlib import Path

import redis


class Pool:
    # max_burst, count and period: all tenants together get 100 at once, and then 100 a minute.
    WHOLE = (99, 100, 60)
    # Use the period of the pool. In total, the minimums must not exceed the pool's burst, nor its count.
    MINIMUMS = {"acme": (9, 40, 60), "beta": (9, 40, 60)}
    # A tenant without a minimum gets a limit of 0, so the pool decides each of its calls.
    NONE = (-1, 1, 60)

    def __init__(self, client):
        self.client = client
        self.script = client.register_script(Path(__file__).with_name("minimum.lua").read_text())

    def throttle(self, tenant, quantity=1):
        """Takes tokens from the tenant's minimum or, if that is used up, from the pool. Replies like CL.THROTTLE."""
        max_burst, count, period = self.WHOLE
        # Do not lend the bursts of the minimums, because their tenants may need these at any time.
        lent = max_burst - sum(minimum[0] + 1 for minimum in self.MINIMUMS.values())
        # The hash tag in braces keeps the keys on one node of a cluster. surrogatepass allows any name, even one with a
        # lone surrogate.
        keys = [f"{{pool}}:minimum:{tenant}".encode(errors="surrogatepass"), "{pool}:lent"]
        return self.script(keys, [*self.MINIMUMS.get(tenant, self.NONE), lent, count, period, quantity])


if __name__ == "__main__":
    # Do not retry: a call that timed out may have taken its tokens.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "socket_timeout": 1, "socket_connect_timeout": 1}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), **once)
    pool = Pool(client)
    for tenant in "greedy", "acme", "beta":
        limited = [pool.throttle(tenant)[0] for _ in range(100)]
        print(tenant, "has", limited.count(0), "of 100")
