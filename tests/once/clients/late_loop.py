"""A call while every turn of the event loop takes longer than a call may wait."""

import asyncio
import time

from redis_asyncio import Pool, throttle


async def main():
    pool = Pool()
    await pool.open()
    call = asyncio.ensure_future(throttle(pool, "user123", (2, 1, 60), fail="open"))
    while not call.done():
        time.sleep(0.2)
        await asyncio.sleep(0)
    print(call.result()[1]["X-RateLimit-Remaining"])


asyncio.run(main())
