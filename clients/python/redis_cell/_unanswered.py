"""The exception of redis_cell.limits while Redis does not answer."""

import contextlib
from importlib import import_module
from typing import Any

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
