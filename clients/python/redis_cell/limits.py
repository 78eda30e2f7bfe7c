"""Exact limits for Flask-Limiter, slowapi, and other limiters that use `limits`: its own storages for Redis and Valkey,
in which redis-cell decides the moving window. The URI, the options and the other strategies work as in `limits`."""

import math
import time
from typing import Any, Optional

from limits.storage import RedisClusterStorage, RedisSentinelStorage, RedisStorage
from packaging.version import Version

from redis_cell._outage import Unanswered as Unanswered, answered, bounded
from redis_cell._strategy import keep


class RedisCellStorage(RedisStorage):
    STORAGE_SCHEME = ["redis-cell", "redis-cells", "redis-cell+unix", "valkey-cell", "valkey-cells", "valkey-cell+unix"]

    def __init__(self, uri: str, *arguments: Any, **options: Any) -> None:
        super().__init__(uri.replace("-cell", "", 1), *arguments, **bounded(uri, options))
        self.epoch = object()  # a new object makes the strategy forget the replies it has kept

    def gcra_key(self, key: str) -> bytes:
        # No other key of `limits` ends like this. A caller's name may contain a lone surrogate, for example from JSON.
        prefixed = self.prefixed_key(key) if hasattr(self, "prefixed_key") else key
        return f"{prefixed}/gcra".encode(errors="surrogatepass")

    def call(self, command: str, key: str, limit: int, expiry: int, *amount: int) -> tuple[bool, float, int]:
        """Returns whether the call is limited; when to retry, or when all tokens are back; and how many remain."""
        # A limit of 0 refuses every request, but the count must be positive.
        quota = limit - 1, max(limit, 1), expiry * 1000
        with answered():
            reply = self.storage.execute_command(command, self.gcra_key(key), *quota, *amount)
        limited, _, remaining, retry_after, reset_after = reply
        # Without a time to retry, the call can never pass: the limit is 0, or the call costs more than the limit.
        wait = (retry_after if retry_after >= 0 else expiry * 1000) if limited else reset_after
        return limited == 1, time.time() + wait / 1000, remaining

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        # slowapi allows fractional costs.
        limited, reset_time, remaining = self.call("CL.PTHROTTLE", key, limit, expiry, math.ceil(amount))
        keep(self, key, reset_time, remaining)
        return not limited

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        _, reset_time, remaining = self.call("CL.PLOOK", key, limit, expiry)
        return reset_time - expiry, limit - remaining

    def clear(self, key: str) -> None:
        super().clear(key)
        self.storage.delete(self.gcra_key(key))
        self.epoch = object()

    def reset(self) -> Optional[int]:
        self.epoch = object()
        return super().reset()


class RedisCellSentinelStorage(RedisCellStorage, RedisSentinelStorage):
    STORAGE_SCHEME = ["redis-cell+sentinel", "valkey-cell+sentinel"]

    def __init__(self, uri: str, *arguments: Any, sentinel_kwargs: Any = {}, **options: Any) -> None:
        super().__init__(uri, *arguments, sentinel_kwargs=bounded(uri, sentinel_kwargs or {}), **options)


class RedisCellClusterStorage(RedisCellStorage, RedisClusterStorage):
    STORAGE_SCHEME = ["redis-cell+cluster", "valkey-cell+cluster"]
    # redis-py 4.3 retries a call in a cluster, whatever its options.
    DEPENDENCIES = {**RedisClusterStorage.DEPENDENCIES, "redis": Version("4.4")}

    def __init__(self, uri: str, *arguments: Any, **options: Any) -> None:
        super().__init__(uri, *arguments, **options)
        # redis-py before 6 and valkey-py have a separate number of retries for clusters.
        self.storage.cluster_error_retry_attempts = options.get("cluster_error_retry_attempts", 0)
