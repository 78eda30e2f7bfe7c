"""Exact limits for Flask-Limiter, slowapi, and other limiters that use `limits`: its own storages for Redis and Valkey, in
which redis-cell decides the moving window. The URI, the options and the other strategies work as in `limits`.

    import redis_cell.limits  # adds redis-cell:// and valkey-cell://
    Limiter(get_remote_address, storage_uri="redis-cell://localhost:6379/0", strategy="moving-window")
"""

from __future__ import annotations

import importlib
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from limits.storage import RedisClusterStorage, RedisSentinelStorage, RedisStorage

from redis_cell import is_outage
from redis_cell._strategy import KEPT, keep
from redis_cell._unanswered import Unanswered


def bounded(uri: str, options: dict[str, Any]) -> dict[str, Any]:
    """Adds short timeouts and no retries to the options, unless they or the URI have their own."""
    library = importlib.import_module("valkey" if uri.startswith("valkey") else "redis")
    defaults: dict[str, Any] = {"socket_timeout": 0.1, "socket_connect_timeout": 0.1}
    if not any(name.startswith("retry") for name in (*options, *parse_qs(urlsplit(uri).query))):
        # A call that timed out may have taken its tokens. READONLY, as after a failover, closes the connection.
        errors = library.ConnectionError, library.TimeoutError, library.ReadOnlyError
        defaults["retry"] = library.retry.Retry(library.backoff.NoBackoff(), 0, errors)
    return {**defaults, **options}


class Cell:
    """The part of a storage that redis-cell decides. The rest is the storage of `limits`."""

    storage: Any

    def __init__(self, uri: str, *arguments: Any, **options: Any) -> None:
        # A strategy may have only a weak proxy of the storage.
        self.identity = object()
        super().__init__(uri.replace("-cell", "", 1), *arguments, **bounded(uri, options))

    @property
    def base_exceptions(self) -> Any:
        base = super().base_exceptions
        return (Unanswered, *base) if isinstance(base, tuple) else (Unanswered, base)

    def call(self, command: str, key: str, limit: int, expiry: int, *amount: int) -> tuple[bool, float, int]:
        """Returns whether the call was limited, when to retry or when all tokens are back, and how many remain."""
        # A limit of 0 refuses every request, but the count must be positive.
        quota = limit - 1, max(limit, 1), expiry * 1000
        try:
            reply = self.storage.execute_command(command, self.gcra_key(key), *quota, *amount)
        except Exception as error:
            if is_outage(error):
                raise Unanswered from error
            raise
        limited, _, remaining, retry_after, reset_after = reply
        # Without a time to retry, the call can never pass: the limit is 0, or the call costs more.
        wait = (retry_after if retry_after >= 0 else expiry * 1000) if limited else reset_after
        return limited == 1, time.time() + wait / 1000, remaining

    def gcra_key(self, key: str) -> bytes:
        # No other key of `limits` ends like this. A caller's name may have a lone surrogate, for example from JSON.
        prefixed = self.prefixed_key(key) if hasattr(self, "prefixed_key") else key
        return f"{prefixed}/gcra".encode(errors="surrogatepass")

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        limited, *stats = self.call("CL.PTHROTTLE", key, limit, expiry, amount)
        keep(self.identity, key, *stats)
        return not limited

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        _, reset_time, remaining = self.call("CL.PLOOK", key, limit, expiry)
        return reset_time - expiry, limit - remaining

    def clear(self, key: str) -> None:
        super().clear(key)
        self.storage.delete(self.gcra_key(key))
        KEPT.set({})

    def reset(self) -> int | None:
        KEPT.set({})
        return super().reset()


class RedisCellStorage(Cell, RedisStorage):
    STORAGE_SCHEME = ["redis-cell", "redis-cells", "redis-cell+unix", "valkey-cell", "valkey-cells", "valkey-cell+unix"]


class RedisCellClusterStorage(Cell, RedisClusterStorage):
    STORAGE_SCHEME = ["redis-cell+cluster", "valkey-cell+cluster"]


class RedisCellSentinelStorage(Cell, RedisSentinelStorage):
    STORAGE_SCHEME = ["redis-cell+sentinel", "valkey-cell+sentinel"]

    def __init__(self, uri: str, *arguments: Any, sentinel_kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(uri, *arguments, sentinel_kwargs=bounded(uri, sentinel_kwargs or {}), **options)
