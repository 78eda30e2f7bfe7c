"""redis_py.py for a cluster, given one of its nodes. To run this file, next to redis_py.py:
[REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] python3 cluster.py"""

from functools import partial

import redis
from redis.cluster import RedisCluster

import redis_py

redis_py.FAILURES += (redis.exceptions.RedisClusterException,)
# At most 20 connections to each node. redis-py 4 retries anyway, and may take the tokens twice.
pool = {"connection_pool_class": partial(redis.BlockingConnectionPool, timeout=redis_py.TIMEOUT), "max_connections": 20}
redis_py.client = RedisCluster.from_url(redis_py.URL, **pool, **redis_py.TIMES, **redis_py.ONCE)

if __name__ == "__main__":
    print(redis_py.throttle("user123", 2, 1, 60))
