"""redis_py.py and redis_asyncio.py with Sentinel, which knows the primary. To run this file, next to redis_asyncio.py:
[REDIS_URL=redis://sentinel:26379] [REDIS_TIMEOUT=0.1] python3 sentinel.py"""

from urllib.parse import urlsplit

import redis.asyncio.sentinel
import redis.sentinel

import redis_asyncio
import redis_py

url = urlsplit(redis_py.URL)
SENTINELS = [(url.hostname, url.port)]  # Name all of them here.
TIMES = {"socket_connect_timeout": redis_py.TIMEOUT, "socket_timeout": redis_py.TIMEOUT}
# The primary's username, password, ssl and db belong here.
PRIMARY = {"service_name": "limits", "max_connections": 20, "timeout": redis_py.TIMEOUT, **TIMES}


class Pool(redis.sentinel.SentinelConnectionPool, redis.BlockingConnectionPool):
    def disconnect(self, inuse_connections=True):
        redis.BlockingConnectionPool.disconnect(self)  # redis-py 6 and older have no such argument.


sentinel = redis.sentinel.Sentinel(SENTINELS, sentinel_kwargs={**TIMES, **redis_py.ONCE})
redis_py.client = sentinel.master_for(connection_pool_class=Pool, **PRIMARY, **redis_py.ONCE)


def connect():
    """Returns a client for redis_asyncio.py and the running event loop."""
    pool = type("Pool", (redis.asyncio.sentinel.SentinelConnectionPool, redis.asyncio.BlockingConnectionPool), {})
    sentinel = redis.asyncio.sentinel.Sentinel(SENTINELS, sentinel_kwargs={**TIMES, **redis_asyncio.ONCE})
    return sentinel.master_for(connection_pool_class=pool, **PRIMARY, **redis_asyncio.ONCE)


if __name__ == "__main__":
    print(redis_py.throttle("user123", 2, 1, 60))
