"""Tests of slowapi, in Starlette's test client."""

import pytest

slowapi = pytest.importorskip("slowapi.middleware")
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from conftest import is_unanswered, seen
from redis_cell.limits import Unanswered


def starlette(server, middleware=False, handlers={}, before=lambda: None, **settings):
    """Returns a client. `/async` and `/sync` have a limit of 3 and a cost of 2. The middleware has a limit of 1."""
    limiter = SlowLimiter(
        lambda: "bob", storage_uri=f"redis-cell://127.0.0.1:{server.port}", strategy="moving-window",
        storage_options={"socket_timeout": 60}, headers_enabled=True,
        default_limits=["1/day"] if middleware else [], **settings,
    )

    @limiter.limit("3/day", cost=2)
    async def of_a_task(request):
        before()
        return PlainTextResponse("Hello")

    @limiter.limit("3/day", cost=2)
    def of_a_thread(request):
        before()
        return PlainTextResponse("Hello")

    async def plain(request):
        before()
        return PlainTextResponse("Hello")

    handlers = {RateLimitExceeded: _rate_limit_exceeded_handler, **handlers}
    routes = [Route("/async", of_a_task), Route("/sync", of_a_thread), Route("/plain", plain)]
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.limiter = limiter
    if middleware:
        app.add_middleware(slowapi.SlowAPIMiddleware)
    return TestClient(app)


@pytest.mark.parametrize("path", ["/async", "/sync"])
def test_slowapi_keeps_the_reply_for_the_headers(server, calls, path):
    client = starlette(server)
    status, remaining, _ = seen(client.get(path), "Remaining", "X-RateLimit-Limit")
    assert (status, remaining) == (200, 1) and calls("cl.plook") == 0
    status, wait = seen(client.get(path), "Retry-After")
    # A sync route runs in another thread. slowapi's error handler cannot see the reply that was kept there, so it calls
    # CL.PLOOK, and gets the time until all tokens are back.
    assert status == 429 and wait in ((28_800, 28_801) if path == "/async" else (57_600, 57_601))


@pytest.mark.parametrize("path", ["/async", "/sync"])
def test_in_slowapi_a_server_that_dies_while_the_route_runs_does_not_change_the_response(server, path):
    client = starlette(server, before=server.kill)
    assert client.get(path).status_code == 200
    assert is_unanswered(client.get(path))


def test_slowapis_middleware_responds_with_503_by_a_handler(server):
    def unanswered(request, error):
        return PlainTextResponse("Try again later", 503, error.headers)

    client = starlette(server, middleware=True, handlers={Unanswered: unanswered})
    assert [client.get("/plain").status_code for _ in range(2)] == [200, 429]
    server.kill()
    assert is_unanswered(client.get("/plain"))


def test_slowapis_fallback(server):
    client = starlette(server, in_memory_fallback_enabled=True)
    assert client.get("/async").status_code == 200
    server.kill()
    assert [client.get("/sync").status_code for _ in range(3)] == [200, 429, 429]
