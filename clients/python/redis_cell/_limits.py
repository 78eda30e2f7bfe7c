"""The options of redis_cell.limits, and its exception while Redis does not answer."""

import contextlib
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

# The exceptions that the installed frameworks turn into a response.
BASES: list[Any] = []
for module, name in ("werkzeug", "ServiceUnavailable"), ("starlette", "HTTPException"):
    with contextlib.suppress(ImportError):
        BASES.append(getattr(import_module(f"{module}.exceptions"), name))


class Unanswered(*(BASES or [Exception])):  # type: ignore[misc]
    """Redis did not decide. Flask, Starlette and FastAPI respond with 503."""

    status_code, retry_after, response = 503, 1, None
    detail = description = "Try again later."
    headers = {"Retry-After": "1", "Cache-Control": "no-store"}

    def __init__(self) -> None:
        Exception.__init__(self, self.detail)

    def get_headers(self, *arguments: Any, **named: Any) -> list[tuple[str, str]]:
        return [*super().get_headers(*arguments, **named), ("Cache-Control", "no-store")]


def bounded(uri: str, options: dict[str, Any]) -> dict[str, Any]:
    """Adds short timeouts and no retries to the options, unless they or the URI have their own."""
    library = import_module("valkey" if uri.startswith("valkey") else "redis")
    defaults: dict[str, Any] = {"socket_timeout": 0.1}
    if not urlsplit(uri).scheme.endswith("unix"):
        defaults["socket_connect_timeout"] = 0.1
    if not any(name.startswith("retry") for name in (*options, *parse_qs(urlsplit(uri).query))):
        # A call that timed out may have taken its tokens. READONLY, as after a failover, closes the connection.
        defaults["retry"] = library.retry.Retry(library.backoff.NoBackoff(), 0)
        defaults["retry_on_error"] = [library.ReadOnlyError]
    return {**defaults, **options}
