"""The moving window of Flask-Limiter and slowapi: a response's headers show the reply to the request's own hit."""

import math
import sys
import time
import weakref
from contextvars import ContextVar
from typing import Any

import limits.util
from limits.strategies import STRATEGIES, MovingWindowRateLimiter

# The replies to the latest hits in this context, by request, storage and key: the reset time, and the tokens left.
KEPT: ContextVar[dict[Any, tuple[float, int]]] = ContextVar("redis_cell", default={})
# The maximum number of replies to keep. A request with more limits asks Redis again.
MOST_KEPT = 20
# `limits` before 3.0 uses a plain tuple.
WindowStats: Any = getattr(limits.util, "WindowStats", lambda *stats: stats)


def name(storage: Any, key: str) -> Any:
    """Returns the name under which a reply is kept. Flask's `g` is part of it, because all requests in one thread of a
    WSGI server share a context. In an ASGI server, each request has its own."""
    flask = sys.modules.get("flask")
    request = weakref.ref(flask.g._get_current_object()) if flask and flask.has_app_context() else None
    return request, storage.epoch, key


def keep(storage: Any, key: str, *stats: Any) -> None:
    # Do not change the old dict: other contexts may share it.
    kept = {**KEPT.get(), name(storage, key): stats}
    KEPT.set(dict([*kept.items()][-MOST_KEPT:]))


class Gcra(MovingWindowRateLimiter):
    """The strategy in STRATEGIES. Its `test`, and a MovingWindowRateLimiter that you create, always ask Redis."""

    def get_window_stats(self, item: Any, *identifiers: str) -> Any:
        if not hasattr(self.storage, "epoch"):
            return super().get_window_stats(item, *identifiers)  # another storage, such as memory://
        kept = KEPT.get().get(name(self.storage, item.key_for(*identifiers)))
        reset_time, remaining = kept or super().get_window_stats(item, *identifiers)
        wait = reset_time - time.time()
        if wait <= 0:
            remaining = item.amount  # the view took so long that all tokens are back
        # The limiters show whole seconds: they add one to this time, and then subtract the current time and round down.
        return WindowStats(int(time.time() + math.ceil(wait - 0.001) + 0.1), remaining)


STRATEGIES["moving-window"] = Gcra
