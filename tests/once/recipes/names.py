"""Calls of three recipes with names that have braces, colons and line breaks: each name has keys of its own."""

import os
import zoneinfo

import ban
import calendar_quota
import gateway
import redis

client = redis.Redis(port=int(os.environ["REDIS_PORT"]), retry=None)
plan = calendar_quota.Plan(client, zoneinfo.ZoneInfo("UTC"))
names = ["", "}", "}x", "{", "{}", "a}b", "a:b", "a\nb", "acme}:bob", "acme", "bob}"]
for name in names:
    ban.Door(client, "account").attempt(name)
    plan.throttle(*plan.of(name))
    for user in names:
        with gateway.admitted(client, name, user, 9_000):
            pass
# These keys last for seconds at least.
for keys, expected in [("attempts:*", 1), ("{plan:*:20*", 2), ("{gate:*:tokens", 1 + len(names))]:
    assert len(client.keys(keys)) == expected * len(names), client.keys(keys)
