"""Calls on a server that is not local, and wants a name and a password, over TLS.

Usage: elsewhere.py HOST PORT PASSWORD CERTIFICATE
"""

import asyncio
import sys

import redis_asyncio
import redis_py

host, port, password, certificate = sys.argv[1:]
settings = {"host": host, "username": "limits", "password": password, "ssl": True, "ssl_ca_certs": certificate}
call = {"key": "user123", "quota": (9, 1, 60), "fail": "closed"}


async def main():
    return await redis_asyncio.throttle(redis_asyncio.Pool(port, **settings), **call)


print(redis_py.throttle(redis_py.Pool(port, **settings), **call)[0], asyncio.run(main())[0])
