"""A log-in while other requests use all connections at the moment at which the attempt would be given back."""

import asyncio

import protect


async def main():
    await protect.pool.open()
    call = protect.pool.call

    async def call_and_fill(*words):
        answer = await call(*words)
        if words[0] == "CL.MTHROTTLE":
            for _ in range(20):
                await protect.pool.turns.acquire()
        return answer

    protect.pool.call = call_and_fill
    print(await protect.login(protect.Form(name="alice", password="correct horse"), "192.0.2.7"))


asyncio.run(main())
