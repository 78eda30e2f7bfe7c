"""Exact rate limits in Redis and Valkey, decided by the module redis-cell: one submodule for each limiter."""

import re


def is_outage(error: Exception) -> bool:
    """Returns whether Redis did not decide: there is no reply, or an error such as LOADING, READONLY or NOPERM.

    An error that begins with ERR is the caller's mistake. redis-py and valkey-py remove ERR from its text.
    """
    if not re.search("redis|valkey", type(error).__module__):
        return False
    return type(error).__name__ != "ResponseError" or bool(re.match("[A-Z]+ ", str(error)))
