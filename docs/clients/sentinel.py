"""A call through Sentinel, which knows the primary. To run this file: [SENTINEL_PORT=26379] python3 sentinel.py"""

import os

from redis.sentinel import Sentinel

once = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": None}
sentinel = Sentinel([("127.0.0.1", int(os.environ.get("SENTINEL_PORT", 26379)))], sentinel_kwargs=once)
client = sentinel.master_for("limits", **once)
print(client.execute_command("CL.THROTTLE", "user123", 2, 1, 60))
