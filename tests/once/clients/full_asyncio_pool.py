"""Forty calls at once by tasks. Says when its connections are open, and begins when it reads a line."""

import asyncio

from redis_asyncio import Pool, throttle


async def main():
    pool = Pool()
    await pool.open()
    print('open', flush=True)
    input()
    calls = [throttle(pool, "user123", (2, 1, 60), fail="open") for _ in range(40)]
    print(sorted(status for status, _ in await asyncio.gather(*calls)))


asyncio.run(main())
