"""A call in a cluster, one node of which is known. To run: [REDIS_URL=redis://…] python3 cluster.py"""

import os

from redis.cluster import RedisCluster

times = {"socket_timeout": 1, "socket_connect_timeout": 1}
client = RedisCluster.from_url(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379", **times)
# redis-py repeats a call without a reply, and takes twice, unless the call names its node; 4.3.4 always repeats it. Ask
# for the node before each call: a failover changes it.
node = client.get_node_from_key("user123")
print(client.execute_command("CL.THROTTLE", "user123", 2, 1, 60, target_nodes=node))
