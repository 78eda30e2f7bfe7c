"""Exact rate limits in Redis and Valkey, decided by the module redis-cell: one submodule for each limiter."""
