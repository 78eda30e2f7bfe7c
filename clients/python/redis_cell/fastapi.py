"""Exact limits for FastAPI and Starlette, kept in Redis by redis-cell. The application's lifespan yields
{"redis": client}, with a client of redis.asyncio or valkey.asyncio."""

import ipaddress
from typing import Any, Callable

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from redis_cell._outage import answered


def address(connection: HTTPConnection) -> str:
    """Returns the caller's IPv4 address, or the /64 network of its IPv6 address, because one customer has a whole /64.

    Callers without a valid address, for example behind a Unix socket, share the name "unknown".
    """
    try:
        ip = ipaddress.ip_address(connection.client.host if connection.client else "")
    except ValueError:
        return "unknown"
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return str(ip if ip.version == 4 else ipaddress.ip_network((int(ip), 64), strict=False))


def limited(name: str, *quota: int, key: Callable[..., str] = address) -> Any:
    """Returns a dependency of FastAPI that limits a route.

    The numbers are those of CL.THROTTLE: max_burst, count, period in seconds, and if needed a quantity and further
    quotas. `key` is a function or dependency that returns the caller's name.
    """
    from fastapi import Depends

    async def limit(connection: HTTPConnection, response: Response, caller: str = Depends(key)) -> None:
        response.headers.update(await throttle(connection, name, caller, *quota))

    return Depends(limit)


async def throttle(connection: HTTPConnection, name: str, caller: str, *quota: int) -> dict[str, str]:
    """Takes a token. Returns the response's headers, or raises an exception that responds with 429, 403, 413 or 503."""
    if not caller:
        raise ValueError("a limit needs the caller's name")
    # The quotas are part of the key, so a new limit starts full. A caller's name may contain a lone surrogate.
    numbers = "/".join(map(str, quota[:3] + quota[4:]))
    key = f"{name}:{numbers}:{caller}".encode(errors="surrogatepass")
    with answered():
        reply = await connection.state.redis.execute_command("CL.THROTTLE", key, *quota)
    limited, limit, remaining, retry_after, reset_after = reply[:5]
    shown = {"Limit": limit, "Remaining": remaining, "Reset": reset_after}
    headers = {f"X-RateLimit-{name}": str(number) for name, number in shown.items()}
    if not limited:
        return headers
    headers["Cache-Control"] = "no-store"
    if retry_after >= 0:
        raise HTTPException(429, headers={**headers, "Retry-After": str(retry_after)})
    # The call can never pass: it asks for more than the limit, which may be 0.
    raise HTTPException(413 if limit else 403, headers=headers)
