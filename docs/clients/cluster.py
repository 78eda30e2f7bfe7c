"""Calls in a cluster, one node of which is known. To run: [REDIS_URL=redis://…] python3 cluster.py"""

import os

from redis.cluster import RedisCluster

times = {"socket_timeout": 1, "socket_connect_timeout": 1}
client = RedisCluster.from_url(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379", **times)


def ask_once(command, key, *words):
    # redis-py repeats a call without a reply, and takes twice, unless the call names its node; 4.3.4 always repeats it.
    return client.execute_command(command, key, *words, target_nodes=client.get_node_from_key(key))


print(ask_once("CL.THROTTLE", "{user123}:minute", 2, 1, 60))
print(ask_once("CL.MTHROTTLE", "{user123}:minute", 2, 1, 60, 1, "{user123}:day", 99, 100, 86400, 1))
