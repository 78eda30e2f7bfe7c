"""Exact rate limits in Redis and Valkey, decided by the module redis-cell: one submodule for each limiter."""

import re

# The base classes of the errors of redis-py and valkey-py.
ERRORS = {"RedisError", "ValkeyError", "RedisClusterException", "ValkeyClusterException"}


def is_outage(error: BaseException) -> bool:
    """Returns whether Redis did not decide: it did not reply, or only with an error such as LOADING, READONLY or NOPERM.

    An error that begins with ERR is a mistake of the caller's. The libraries remove ERR from its text.
    """
    if not ERRORS & {kind.__name__ for kind in type(error).__mro__}:
        return False
    return type(error).__name__ != "ResponseError" or bool(re.match("[A-Z]+ ", str(error)))
