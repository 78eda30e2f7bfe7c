"""Tests of the dependency for FastAPI and Starlette, in Starlette's test client and in uvicorn."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")
from fastapi import Depends, FastAPI, Header, Response, WebSocket
from fastapi.responses import JSONResponse
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient, WebSocketDenialResponse

from conftest import is_unanswered, seen
from redis_cell.fastapi import address, limited, throttle
from servers import WITH_THE_TEST, wait_for

DAY = 2, 3, 86400


@pytest.fixture
def started(server):
    """Returns a function that starts an application and returns a client for it: started(app, caller="192.0.2.1")."""
    clients = contextlib.ExitStack()

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with Redis(port=server.port, socket_timeout=5, socket_connect_timeout=5) as client:
            yield {"redis": client}

    def start(app, caller="192.0.2.1"):
        app.router.lifespan_context = lifespan

        async def from_caller(scope, receive, send):
            await app({**scope, "client": (caller, 1) if caller is not None else None}, receive, send)

        return clients.enter_context(TestClient(from_caller))

    with clients:
        yield start


def app_with(*limits, path="/"):
    app = FastAPI()
    app.get(path, dependencies=[*limits])(lambda: "Hello")
    return app


def statuses(client, times=4, path="/", **named):
    return [client.get(path, **named).status_code for _ in range(times)]


def test_headers_and_refusals(started):
    client = started(app_with(limited("login", *DAY)))
    passed = client.get("/")
    assert seen(passed, "Limit", "Remaining", "Reset", "Retry-After") == (200, 3, 2, 28800, None)
    assert "Cache-Control" not in passed.headers and statuses(client, 2) == [200, 200]
    refused = client.get("/")
    assert seen(refused, "Limit", "Remaining", "Reset", "Retry-After") == (429, 3, 0, 86400, 28800)
    assert refused.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("quota, status", [((*DAY, 4), 413), ((-1, 1, 86400), 403)])
def test_a_call_that_can_never_pass(started, quota, status):
    refused = started(app_with(limited("large", *quota))).get("/")
    assert seen(refused, "Retry-After") == (status, None) and refused.headers["Cache-Control"] == "no-store"


def test_while_redis_does_not_answer_the_response_is_503(started, server):
    client = started(app_with(limited("login", *DAY)))
    server("REPLICAOF 127.0.0.1 1")
    assert is_unanswered(client.get("/"))
    server.kill()
    assert is_unanswered(client.get("/"))


def test_several_quotas_in_one_call(started, calls):
    client = started(app_with(limited("many", 9, 10, 1, 1, 1, 2, 86400)))
    assert statuses(client, 3) == [200, 200, 429] and calls("cl.throttle") == 3
    assert seen(client.get("/"), "Limit", "Retry-After") == (429, 2, 43200)


def test_a_changed_rate_starts_full(started, clock):
    assert statuses(started(app_with(limited("login", 9, 10, 86400))), 11)[-1] == 429
    assert statuses(started(app_with(limited("login", 9, 10, 60))), 11) == 10 * [200] + [429]
    # A limiter whose second quota has changed starts full, too.
    assert statuses(started(app_with(limited("plan", 9, 10, 1, 1, 1, 2, 86400))), 3) == [200, 200, 429]
    assert statuses(started(app_with(limited("plan", 9, 10, 1, 1, 1, 2, 60))), 3) == [200, 200, 429]


def test_a_caller_cannot_spell_another_limits_key(started):
    app, named = FastAPI(), lambda name=Header(): name
    app.get("/api", dependencies=[limited("api", *DAY, key=named)])(lambda: "Hello")
    app.get("/heavy", dependencies=[limited("api:heavy", *DAY, key=named)])(lambda: "Hello")
    client = started(app)
    assert statuses(client, 4, "/api", headers={"name": "heavy:bob"})[-1] == 429
    assert statuses(client, 4, "/api", headers={"name": "heavy:2/3/86400:bob"})[-1] == 429
    assert statuses(client, 3, "/heavy", headers={"name": "bob"}) == 3 * [200]


def test_a_key_may_have_a_lone_surrogate_and_an_empty_one_is_an_error(started):
    assert statuses(started(app_with(limited("json", *DAY, key=lambda: "\ud800")))) == 3 * [200] + [429]
    with pytest.raises(ValueError, match="the caller's name"):
        started(app_with(limited("empty", *DAY, key=lambda: ""))).get("/")


@pytest.mark.parametrize("quota, message", [
    ((2, 0, 86400), "count must be 1 or more"), ((2, 3, None), "Invalid input of type"),
])
def test_mistakes_are_no_outage(started, quota, message):
    with pytest.raises(Exception, match=message):
        started(app_with(limited("wrong", *quota))).get("/")


@pytest.mark.parametrize("one, other, share", [
    ("192.0.2.1", "::ffff:192.0.2.1", True), ("192.0.2.1", "192.0.2.2", False),
    ("2001:db8::1", "2001:db8::ffff:1", True), ("2001:db8:0:1::", "2001:db8:0:2::", False),
    ("fe80::1%eth0", "fe80::2", True), (None, "unknown", True), ("unknown", "192.0.2.1:80", True),
    ("[2001:db8::1]:443", "", True), ("unknown", "192.0.2.1", False),
])
def test_addresses_that_share_a_limit(started, one, other, share):
    app = app_with(limited("login", *DAY))
    assert statuses(started(app, one)) == 3 * [200] + [429]
    assert statuses(started(app, other), 1) == [429 if share else 200]


def test_a_websocket_is_limited_before_the_handshake(started, server):
    app = FastAPI(dependencies=[limited("socket", 0, 1, 86400)])

    @app.websocket("/")
    async def echo(websocket: WebSocket):
        await websocket.accept()
        await websocket.send_text("Hello")

    client = started(app)
    with client.websocket_connect("/") as websocket:
        assert websocket.receive_text() == "Hello"
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect("/"):
        pass
    assert seen(refused.value, "Retry-After") == (429, 86400)
    server.kill()
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect("/"):
        pass
    assert is_unanswered(refused.value)


def test_headers_of_a_returned_response_are_the_routes_to_pass_on(started):
    app = FastAPI(dependencies=[limited("login", *DAY)])
    app.get("/lost")(lambda: JSONResponse("Hello"))

    @app.get("/")
    def view(response: Response):
        return JSONResponse("Hello", headers=response.headers)

    client = started(app)
    assert seen(client.get("/"), "Remaining") == (200, 2) and seen(client.get("/lost"), "Remaining") == (200, None)


def test_starlette_and_mounted_applications(started):
    async def log_in(request):
        return PlainTextResponse("Welcome", headers=await throttle(request, "login", address(request), *DAY))

    inner = Starlette(routes=[Route("/", log_in)])
    client = started(Starlette(routes=[Mount("/inner", inner), Route("/", log_in)]))
    assert [seen(client.get(path), "Remaining") for path in ("/", "/inner/", "/")] == [(200, 2), (200, 1), (200, 0)]
    assert seen(client.get("/"), "Retry-After") == (429, 28800)


def test_a_dependency_of_its_own_names_the_caller(started):
    def current_user(name: str = Header()):
        return name

    def key(user: str = Depends(current_user)):
        return f"user {user}"

    client = started(app_with(limited("login", *DAY, key=key)))
    assert statuses(client, headers={"name": "alice"}) == 3 * [200] + [429]
    assert statuses(client, 1, headers={"name": "bob"}) == [200] and statuses(client, 1) == [422]


APP = """import contextlib, os, redis.asyncio
from fastapi import FastAPI
from redis_cell.fastapi import limited
@contextlib.asynccontextmanager
async def lifespan(app):
    async with redis.asyncio.Redis(port=int(os.environ["PORT"])) as client:
        yield {"redis": client}
app = FastAPI(lifespan=lifespan)
app.get("/", dependencies=[limited("login", 2, 3, 86400)])(lambda: "Hello")"""


@pytest.mark.parametrize("trusted, all_share", [([], True), (["--forwarded-allow-ips=*"], False)])
def test_behind_a_unix_socket_all_share_a_limit_unless_the_proxys_addresses_are_trusted(
    server, request, tmp_path, trusted, all_share
):
    pytest.importorskip("uvicorn")
    (tmp_path / "app.py").write_text(APP)
    path = str(tmp_path / "http")
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PORT": str(server.port)}
    words = [*WITH_THE_TEST, "KILL", sys.executable, "-m", "uvicorn", "--uds", path, *trusted, "app:app"]
    process = subprocess.Popen(words, cwd=tmp_path, env=environment)
    request.addfinalizer(process.kill)
    wait_for("uvicorn listens", lambda: process.poll() is None and os.path.exists(path))

    def get(caller):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(path)
        connection.request("GET", "/", headers={"X-Forwarded-For": caller})
        return connection.getresponse().status

    assert [get("192.0.2.1") for _ in range(4)] == 3 * [200] + [429]
    assert get("192.0.2.2") == (429 if all_share else 200) and get("unknown") == (429 if all_share else 200)
