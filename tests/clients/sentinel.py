"""A call through Sentinel, which knows the primary. To run this file: [SENTINEL_PORT=26379] python3 sentinel.py"""

import os

from redis.sentinel import Sentinel

sentinel = Sentinel([("127.0.0.1", int(os.environ.get("SENTINEL_PORT", 26379)))], socket_timeout=1)
client = sentinel.master_for("limits", socket_timeout=1, retry=None)
print(client.execute_command("CL.THROTTLE", "user123", 2, 1, 60))
