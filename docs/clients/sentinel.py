"""A call through Sentinel, which knows the primary. To run: [REDIS_URL=redis://sentinel:26379] python3 sentinel.py"""

import os
from urllib.parse import urlsplit

from redis.sentinel import Sentinel

url = urlsplit(os.environ.get("REDIS_URL") or "redis://127.0.0.1:26379")
# The URL gives host and port. Username, password and ssl stand here, and db for the primary.
once = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": None}
sentinel = Sentinel([(url.hostname, url.port)], sentinel_kwargs=once)
client = sentinel.master_for("limits", **once)
print(client.execute_command("CL.THROTTLE", "user123", 2, 1, 60))
