"""A limit whose choice, open or closed, is misspelt, and whose call fails."""

import asyncio

import protect


async def main():
    try:
        print(await protect.ask("login", "close", "NO.SUCH.COMMAND"))
    except protect.HTTPException as error:
        print(error.status_code)


asyncio.run(main())
