"""A guaranteed minimum for each tenant. The rest of the pool is lent to any tenant.

To run this file: [REDIS_URL=redis://…] python3 minimum.py
"""

import os
from pathlib import Path

import redis


class Pool:
    # max_burst, count, period: all tenants together get a hundred at once and a hundred a minute.
    WHOLE = (99, 100, 60)
    # The minimums have the period of the pool. The sums of their bursts and of their counts are at most the pool's.
    MINIMUMS = {"acme": (9, 40, 60), "beta": (9, 40, 60)}
    # A tenant without a minimum has a limit of 0: the pool decides each of its calls.
    NONE = (-1, 1, 60)

    def __init__(self, client):
        self.client = client
        self.script = client.register_script(Path(__file__).with_name("minimum.lua").read_text())

    def throttle(self, tenant, quantity=1):
        """Takes tokens from the tenant's minimum, or else from the pool. Returns the five integers of CL.THROTTLE."""
        max_burst, count, period = self.WHOLE
        # Do not lend the bursts of the minimums: their tenants may call at any moment.
        lent = max_burst - sum(minimum[0] + 1 for minimum in self.MINIMUMS.values())
        # The hash tag in braces keeps the keys on one node of a cluster. A name may contain a lone surrogate.
        keys = [f"{{pool}}:minimum:{tenant}".encode(errors="surrogatepass"), "{pool}:lent"]
        return self.script(keys, [*self.MINIMUMS.get(tenant, self.NONE), lent, count, period, quantity])


if __name__ == "__main__":
    # No retries: a call that timed out may have taken its tokens.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "socket_timeout": 1, "socket_connect_timeout": 1}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), **once)
    pool = Pool(client)
    for tenant in "greedy", "acme", "beta":
        limited = [pool.throttle(tenant)[0] for _ in range(100)]
        print(tenant, "has", limited.count(0), "of 100")
