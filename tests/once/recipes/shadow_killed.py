"""Two limits whose server is gone: the first is not enforced, the second is."""

import os

import redis
import shadow

client = redis.Redis(port=int(os.environ["REDIS_PORT"]), retry=None)
limit = shadow.Limit(client, "search", (15, 30, 60), enforced=False)
print(limit.allows("alice"), dict(limit.counts))
try:
    shadow.Limit(client, "search", (15, 30, 60), enforced=True).allows("alice")
except redis.RedisError:
    print("an error")
