"""Calls in a cluster, by way of one known node. To run it: [REDIS_PORT=6379] python3 cluster.py"""

import os

from redis.cluster import RedisCluster

client = RedisCluster(host="127.0.0.1", port=int(os.environ.get("REDIS_PORT", 6379)))
print(client.execute_command("CL.THROTTLE", "{user123}:minute", 2, 1, 60))
limits = ("{user123}:minute", 2, 1, 60, 1), ("{user123}:day", 99, 100, 86400, 1)
print(client.execute_command("CL.MTHROTTLE", *limits[0], *limits[1]))
