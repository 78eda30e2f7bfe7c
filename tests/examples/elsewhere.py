"""Calls on a server that is not local, and wants a name and a password, over TLS.

Usage: elsewhere.py HOST PORT PASSWORD CERTIFICATE
"""

import asyncio
import sys

import redis_asyncio
import redis_py
from limits import Limit

host, port, password, certificate = sys.argv[1:]
url = f"rediss://limits:{password}@{host}:{port}?ssl_ca_certs={certificate}"
limit = Limit("login", (9, 1, 60), fail="closed")


async def main():
    return await redis_asyncio.throttle(redis_asyncio.connect(url), limit, "alice")


print(redis_py.throttle(redis_py.connect(url), limit, "alice")[0], asyncio.run(main())[0])
