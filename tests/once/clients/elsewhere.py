"""A call on a server that is not local, and wants a name and a password, over TLS: its host, port and certificate."""

import sys

import redis_asyncio
import redis_py

host, port, certificate = sys.argv[1:]
settings = {"host": host, "username": "limits", "password": "secret", "ssl": True, "ssl_ca_certs": certificate}
print(redis_py.throttle(redis_py.Pool(port, **settings), "user123", (2, 1, 60), fail="closed")[0])
redis_asyncio.asyncio.run(redis_asyncio.Pool(port, **settings).open())
