"""Outages: how long a call may take, and the refusal of a request that Redis did not decide."""

import contextlib
import re
from importlib import import_module
from typing import Any, Callable, Iterator
from urllib.parse import urlsplit

# Base classes of Unanswered: the frameworks turn the first two into a response, and `limits` expects the others.
NAMES = {"werkzeug": "ServiceUnavailable", "starlette": "HTTPException", "redis": "RedisError", "valkey": "ValkeyError"}
BASES: list[Any] = []
for module, name in NAMES.items():
    with contextlib.suppress(ImportError):
        BASES.append(getattr(import_module(f"{module}.exceptions"), name))


class Unanswered(*BASES):  # type: ignore[misc]
    """Redis did not decide. Flask, Starlette and FastAPI respond with 503."""

    status_code, retry_after, response = 503, 1, None
    detail = description = "Try again later."
    headers = {"Retry-After": "1", "Cache-Control": "no-store"}

    def __init__(self) -> None:
        Exception.__init__(self, self.detail)

    def get_headers(self, *arguments: Any, **named: Any) -> list[tuple[str, str]]:
        return [*super().get_headers(*arguments, **named), ("Cache-Control", "no-store")]


@contextlib.contextmanager
def answered(refusal: Callable[[], Exception] = Unanswered) -> Iterator[None]:
    """Raises `refusal()` if Redis does not decide: after no reply, or an error such as LOADING, READONLY or NOPERM.

    An error that begins with ERR is the caller's mistake, and is raised as it is. So is an argument of a wrong type. A
    server with too many clients says ERR, too. redis-py and valkey-py remove "ERR" from the text.
    """
    try:
        yield
    except Exception as error:
        name, is_outage = type(error).__name__, re.match("[A-Z]+ |max number of clients", str(error))
        is_mistake = name == "DataError" or (name == "ResponseError" and not is_outage)
        if is_mistake or not re.search("redis|valkey", type(error).__module__):
            raise
        raise refusal() from error


def bounded(uri: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options with short timeouts and without retries, unless the options or the URI say otherwise."""
    url, library = urlsplit(uri), import_module("valkey" if uri.startswith("valkey") else "redis")
    # Each concurrent call needs a connection. By default, redis-py 8 allows only 100.
    defaults: dict[str, Any] = {"socket_timeout": 0.1, "max_connections": 1000}
    if not url.scheme.endswith("unix"):
        defaults["socket_connect_timeout"] = 0.1
    if "retry" not in url.query and not any(name.startswith("retry") for name in options):
        # Never retry: a call that timed out may have taken its tokens. READONLY (a failover) only causes a reconnect.
        defaults["retry"] = library.retry.Retry(library.backoff.NoBackoff(), 0)
        defaults["retry_on_error"] = [library.ReadOnlyError]
    return {**defaults, **options}
