"""Fairness and priority: tenants share a pool, each up to its own limit; background work gets up to half of the pool.

To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=1] python3 fairness.py
"""

import os

import redis


class Pool:
    # max_burst, count, period: the pool allows a hundred at once and a hundred a minute, a tenant gets at most forty.
    WHOLE, TENANT = (99, 100, 60), (39, 40, 60)
    # Background work has a smaller burst at the pool's rate: it is limited while half of the pool is taken.
    BACKGROUND = (49, 100, 60)

    def __init__(self, client):
        self.client = client

    def admits(self, tenant, background=False):
        """Takes a token from the tenant and one from the pool, or none. Returns the names of those that refuse."""
        # The hash tag in braces keeps the keys on one node of a cluster. A name may have half of a surrogate pair.
        key = f"{{pool}}:tenant:{tenant}".encode(errors="surrogatepass")
        _, own, whole = self.client.execute_command(
            "CL.MTHROTTLE",
            *(key, *self.TENANT, 1),
            *("{pool}:all", *(self.BACKGROUND if background else self.WHOLE), 1),
        )
        return [name for name, (limited, *_) in zip(("tenant", "pool"), (own, whole)) if limited]


if __name__ == "__main__":
    # A repeated call would take twice, so there are no retries. The listed error closes the connection: after a
    # failover behind one address, it leads to a replica.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    timeout = float(os.environ.get("REDIS_TIMEOUT") or 1)
    times = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379", **times, **once)
    pool = Pool(client)
    for tenant, background in ("greedy", False), ("modest", True), ("modest", False), ("third", False):
        refusals = [pool.admits(tenant, background) for _ in range(100)]
        first = next(refusal for refusal in refusals if refusal)
        print(tenant, "in the background:" if background else "has", refusals.count([]), "of 100, refused by", first)
