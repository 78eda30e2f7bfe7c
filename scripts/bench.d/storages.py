"""Makes requests to a storage of `limits`. Usage: storages.py NAME PORT. Each line of input is "CALLERS TIMES": that
many callers then make that many requests each. Prints "done" after each line."""

import sys

import redis_cell.limits  # registers redis-cell://
from limits import RateLimitItemPerDay, strategies
from limits.storage import storage_from_string

name, port = sys.argv[1:]
scheme, strategy = {
    "fixed window": ("redis", strategies.FixedWindowRateLimiter),
    "sliding window counter": ("redis", strategies.SlidingWindowCounterRateLimiter),
    "moving window": ("redis", strategies.MovingWindowRateLimiter),
    "redis-cell": ("redis-cell", strategies.MovingWindowRateLimiter),
}[name]
limiter = strategy(storage_from_string(f"{scheme}://127.0.0.1:{port}", socket_timeout=600))
limit = RateLimitItemPerDay(1000)
for line in sys.stdin:
    callers, times = map(int, line.split())
    for _ in range(times):
        for caller in range(callers):
            assert limiter.hit(limit, f"192.168.{100 + caller // 100}.{100 + caller % 100}")
    print("done", flush=True)
