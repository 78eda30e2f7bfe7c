"""The examples in Python as their frameworks' users know them: answers, methods, views and bodies of each kind."""

import asyncio
import importlib
import sys

from applications import Row, named, on, python
from packages import ROOT

DJANGO = named("django")
SITES = [
    Row("flask_site", python("flask"), "$PYTHON $TESTS/sites.py flask"),
    Row("fastapi_site", python("fastapi, uvicorn"), "$PYTHON $TESTS/sites.py fastapi"),
    *DJANGO,
]
ANSWERS = {"/fails": 500, "/missing": 404, "/moved": 302, "/streamed": 200, "/own": 200}
FURTHER = {"flask_site": {"/async": 404}, "fastapi_site": {"/later": 401, "/inner/fails": 500, "/number/x": 422}}


@on(SITES)
def test_whatever_answers_shows_the_headers_of_the_limit(app):
    for path, status in {**ANSWERS, **FURTHER.get(app.row.name, {})}.items():
        caller = app.caller()
        for expected, remaining in (status, 2), (status, 1), (status, 0), (429, 0):
            answer = app.get(path, caller)
            assert answer.numbers("Limit", "Remaining") == (expected, 3, remaining), f"{path}: {answer}"
            assert answer.number("Reset") > 0 and (answer.number("Retry-After") is None) == (expected != 429), path


@on(SITES[:2])
def test_several_routes_may_have_one_limit_and_a_route_two(app, server):
    caller, paths = app.caller(), ["/stacked", "/moved", "/stacked", "/stacked"]
    # All headers are of the limit with fewer remaining.
    shown = [app.get(path, caller).numbers("Limit", "Remaining") for path in paths]
    assert shown == [(200, 3, 2), (302, 3, 1), (200, 3, 0), (429, 3, 0)]
    assert sorted(server(f"KEYS *{caller}"))[0] == f"all:{caller}"


@on(SITES)
def test_a_preflight_and_a_health_check_are_not_charged(app, server):
    caller = app.caller()
    for _ in range(9):
        assert app.get("/streamed", caller, "OPTIONS", Access_Control_Request_Method="GET").status == 200
        assert app.get("/health", caller).status == 200
    assert not server(f"KEYS *{caller}")
    assert app.get("/streamed", caller).number("Remaining") == 2
    assert [app.get("/streamed", caller, "OPTIONS").status for _ in range(3)] == [200, 200, 429]


@on(DJANGO)
def test_a_log_in_charges_the_address_before_the_body_is_read_and_an_account_only_by_its_name(app, server):
    def post(body, kind="application/json", caller="192.0.2.1"):
        return app.get("/login", caller, "POST", body, Content_Type=kind).status

    # GET has nothing to give back.
    for method in "OPTIONS", "GET", "HEAD":
        assert [app.get("/login", "192.0.2.1", method).status for _ in range(30)] == [200] * 30
    assert not server("KEYS login*")
    bodies = ("{", "application/json"), ("[" * 100_000, "application/json"), ("x", "text/strange"), ("x", "multipart/x")
    statuses = [post(*body) for body in 5 * bodies]
    assert not {*statuses} & {200, 429} and post(*bodies[0]) == 429, statuses
    nameless = "[1]", "{}", *('{"username": %s}' % name for name in ("null", "[1]", "{}", '" "'))
    assert [post(body, caller="192.0.2.2") for body in nameless] == [200] * 6
    assert server("KEYS login_account:*") == []
    assert server("CL.LOOK login_address:192.0.2.2 19 60 3600")[2] == 14
    # A serializer makes texts of numbers.
    for name in "49151234", "4.5", "0":
        statuses = [post('{"username": %s}' % form, caller="192.0.2.3") for form in (name, f'" {name}"', name, name)]
        assert statuses == [200, 200, 200, 429], name


@on(DJANGO)
def test_a_right_password_gives_back_the_attempt_and_no_other_charge(app, server):
    caller = app.caller()
    form = "/both", caller, "POST", "username=alice&password=correct horse"
    statuses = [app.get(*form, Content_Type="application/x-www-form-urlencoded").status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert sorted(server(f"KEYS *{caller}")) == [f"api_address:{caller}"]


async def ask(app, *messages, **scope):
    """Gives an application of ASGI these messages, and returns what it sends: statuses and types."""
    sent, messages = [], iter(messages)

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message.get("status", message["type"]))

    caller = {"path": "/", "headers": [], "query_string": b"", "client": ("192.0.2.1", 80), "method": "GET"}
    await app({**caller, **scope}, receive, send)
    return sent


def test_fastapi_limits_a_websocket_and_has_a_connection_for_each_event_loop(server, monkeypatch):
    monkeypatch.setenv("REDIS_PORT", str(server.port))
    monkeypatch.syspath_prepend(ROOT / "docs/clients")
    for name in "limits", "redis_asyncio", "fastapi_app":
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("fastapi_app")
    from fastapi import WebSocket

    @module.app.websocket("/socket")
    async def socket(websocket: WebSocket, limited=module.limited(module.Limit("socket", (2, 1, 86400)))):
        await websocket.accept()

    async def lifetime(path, kind):
        """Makes a call in an event loop of its own, as `with TestClient(app)` does."""
        sent = await ask(module.app, {"type": f"{kind}.connect"}, path=path, type=kind)
        await ask(module.app, {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}, type="lifespan")
        return sent[0]

    async def bare(scope, receive, send):
        await send({"type": "http.response.start", "status": 204})

    module.app.mount("/bare", bare)
    assert asyncio.run(lifetime("/bare/", "http")) == 204
    answers = [asyncio.run(lifetime("/socket", "websocket")) for _ in range(4)]
    assert answers == [*3 * ["websocket.accept"], "websocket.close"]
    assert [asyncio.run(lifetime("/", "http")) for _ in range(4)] == [200, 200, 200, 429]
    assert server("CL.LOOK hello:192.0.2.1 2 1 86400")[2] == 0, "Redis has decided each call"
