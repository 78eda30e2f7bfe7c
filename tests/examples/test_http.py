"""The examples as their frameworks' users know them: answers, methods, addresses, log-ins, and nginx's locations."""

import re

import pytest

from applications import APPLICATIONS, FORM, LIMIT, Row, named, on, python
from servers import wait_for

NGINX, DJANGO = named("nginx"), named("django")


def keys(app, server, **headers):
    """Returns the keys that a request with these headers is charged to."""
    server("FLUSHALL")
    assert app.get(**headers).status == 200
    return [key.removeprefix("nginx_") for key in server("KEYS *")]


# The paths of each site that answer in further ways, and their statuses. A stacked one has two limits.
ANSWERS = {"/fails": 500, "/missing": 404, "/moved": 302, "/streamed": 200}
FURTHER = {
    "flask": {"/own": 200, "/async": 404, "/stacked": 200},
    "fastapi": {"/own": 200, "/later": 401, "/inner/fails": 500, "/stacked": 200},
    "django": {"/own": 200},
    "express_ioredis": {"/stacked": 200},
}


@on(APPLICATIONS)
def test_whatever_answers_shows_the_headers_of_the_limit(app):
    for path, status in {**ANSWERS, **FURTHER.get(app.row.name, {})}.items():
        caller = app.caller()
        for expected, remaining in (status, 2), (status, 1), (status, 0), (429, 0):
            *shown, reset, wait = app.get(path, caller).numbers("Limit", "Remaining", "Reset", "Retry-After")
            assert shown == [expected, LIMIT, remaining] and reset > 0, (path, shown, reset)
            assert (wait is None) == (expected != 429), path


@on(APPLICATIONS)
def test_a_preflight_and_a_health_check_are_not_charged(app, server):
    caller = app.caller()
    for _ in range(9):
        preflight = app.get("/streamed", caller, "OPTIONS", Access_Control_Request_Method="GET")
        assert preflight.status == app.get("/health", caller).status == 200
    assert not server(f"KEYS *{caller}")
    charged = [app.get("/streamed", caller, method).status for method in ("OPTIONS", "OPTIONS", "GET", "OPTIONS")]
    assert charged == [200, 200, 200, 429]


# For each PROXY: headers X-Forwarded-For, and the address that is limited. The peer is 127.0.0.1.
ADDRESSES = {
    "127.0.0.1, 198.51.100.7,unix,": {
        "10.0.0.1, 192.0.2.7:5678": "192.0.2.7",
        "10.0.0.1, ::ffff:102:304": "1.2.3.4",
        "64:ff9b::102:304": "1.2.3.4",
        "2001:DB8:0001:2::1": "2001:db8:1:2::/64",
        "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
        "2001:db8::4": "2001:db8::/64",
        "1:0:0:2::9": "1:0:0:2::/64",
        "0:0:0:1::9": "0:0:0:1::/64",
        "unknown, 198.51.100.7": "198.51.100.7",
        "203.0.113.5, 198.51.100.7:4321": "203.0.113.5",
        "203.0.113.5:80,  ::ffff:198.51.100.7 ,": "203.0.113.5",
        "64:ff9b:1::1, [::ffff:198.51.100.7]:4321": "64:ff9b:1::/64",
        "": "127.0.0.1",
    },
    "127.0.0.0/8,198.51.100.0/24": {"203.0.113.5, 198.51.100.7": "203.0.113.5", "203.0.113.7, 1.2.3": "127.0.0.1"},
    # The caller has made it up.
    "": {"192.0.2.7": "127.0.0.1"},
    "192.0.2.1": {"192.0.2.7": "127.0.0.1"},
}


@on(named("flask", "express_ioredis", "nginx"))
def test_each_example_limits_the_same_address_or_network_behind_its_own_proxies(app, server, start):
    for proxy, headers in ADDRESSES.items():
        started = start(app.row, server, PROXY=proxy)
        for header, limited in headers.items():
            assert keys(started, server, X_Forwarded_For=header) == [f"hello:{limited}"], (proxy, header)


@on(DJANGO)
def test_a_log_in_charges_two_limits_and_a_right_password_gives_back_its_own(app, server):
    def log_in(password, path="/login"):
        return app.get(path, "192.0.2.1", "POST", f"username=%20ALICE&password={password}", Content_Type=FORM).status

    assert [log_in("correct+horse") for _ in range(5)] == [200] * 5
    assert [log_in("guess") for _ in range(4)] == [200, 200, 200, 429]
    assert server("CL.LOOK login_account:alice 2 1 86400")[2] == 0
    assert server("CL.LOOK login_address:192.0.2.1 19 60 3600")[2] == 17
    server("FLUSHALL")
    # A limit that is no log-in's keeps its charge.
    assert [log_in("correct+horse", "/both") for _ in range(4)] == [200, 200, 200, 429]
    assert server("KEYS *") == ["api_address:192.0.2.1"]


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


TEST_CLIENT = Row("test_client", python("fastapi, starlette.testclient"), "$PYTHON $TESTS/fastapi_client.py")


@on([TEST_CLIENT], "program", TIMEOUT=3600)
def test_fastapi_limits_a_websocket_and_has_a_connection_for_each_event_loop(program, server):
    assert program.output(server.port).split() == ["2", "open", "1", "open", "0", "open", "0"]
    assert server("CL.LOOK hello:testclient 2 1 86400")[2] == 0, "Redis has decided each call"


# 10 a second and 1,000 a day. Each count begins at 0.
@on(named("express_ioredis", "nginx"))
def test_two_quotas_limit_by_the_one_that_decides_and_each_call_is_counted(app, server):
    def counts():
        found = re.findall(r'limit="(?:nginx_)?(\w+)",result="(\w+)"\} (\d+)', app.get("/metrics").body)
        return {(name, way): int(count) for name, way, count in found}

    caller, names, before = app.caller(), ("Limit", "Remaining", "Quota"), counts()
    assert app.get("/items", caller).numbers(*names) == (200, 10, 9, 1)
    # A state with all tokens of the second, and one token of the day.
    (key,), now = server(f"KEYS *items:{caller}"), int(server("TIME")[0])
    day = now + 999 * 86400 // 1000
    server(f"SET {key} {now}000000000{day}000000000 EXAT {day}")
    assert app.get("/items", caller).numbers(*names) == (200, 1000, 0, 2)
    assert app.get("/items", caller).numbers(*names) == (429, 1000, 0, 2)
    server.kill()
    assert app.get("/", caller).status == 200 and app.get("/login", caller, "POST").status == 503
    grown = {row: count - before[row] for row, count in counts().items() if count > before[row]}
    assert grown == {("items", "allowed"): 2, ("items", "limited"): 1, ("hello", "share"): 1, ("login", "closed"): 1}


# Locations that change a request's address, or have words that come before a charge in the access phase.
CHANGED = "in_server", "break", "set_uri", "last", "try_files", "subrequest", "satisfy"


@on(NGINX)
def test_a_request_is_charged_however_its_address_changes(app, server):
    for how in CHANGED:
        caller = app.caller()
        statuses = [app.get(f"/{how}/any", caller).status for _ in range(LIMIT + 1)]
        assert 429 not in statuses[:LIMIT] and statuses[LIMIT] == 429, (how, statuses)
        assert server("KEYS *" + caller) == [f"nginx_hello:{caller}"]
    # A stranger whose name is an address does not use up its tokens.
    assert [app.get("/key", X_Api_Key=caller).status for _ in range(LIMIT)] == [200] * LIMIT
    assert {*server(f"KEYS *{caller}")} == {f"nginx_hello:{caller}", f"nginx_hello:caller:{caller}"}


@on(NGINX)
def test_a_request_that_is_charged_twice_shows_the_limit_with_fewer_remaining(app, server):
    caller = app.caller()
    # The application has no limit, but a Retry-After.
    answers = [app.get("/two?wait=7", caller) for _ in range(LIMIT + 1)]
    shown = [answer.numbers("Limit", "Remaining", "Quota") for answer in answers]
    assert shown == [(200, LIMIT, 2, None), (200, LIMIT, 1, None), (200, LIMIT, 0, None), (429, LIMIT, 0, None)]
    # A page of another origin can read the refusal.
    assert answers[LIMIT].headers["Access-Control-Allow-Origin"] == "*"
    assert "Retry-After" in answers[LIMIT].headers["Access-Control-Expose-Headers"]


@on(NGINX)
def test_a_refused_caller_is_remembered_until_a_token_is_back(app):
    caller = app.caller()
    for status in 429, 200:
        wait_for(f"an answer with {status}", lambda: app.get("/second", caller).status == status)


@on(NGINX)
def test_a_wrong_number_or_limit_stops_nginx_and_is_named(app, server, start, capfd):
    wrong = "nginxes = -1", "timeout = 0 / 0", "port = '1'", "new('name:b', {})", "new('name', { { 0 / 0, 1, 60 } })"
    for setting in wrong:
        with pytest.raises(AssertionError):
            start(app.row, server, SETTING=f"limits.{setting};")
        assert ("name" if "new" in setting else setting.split()[0]) in capfd.readouterr().err


@on(NGINX)
def test_an_application_behind_nginx_limits_each_caller_and_one_limit_has_all_headers(app, server, start):
    express = start(named("express")[0], server)
    application = {"APPLICATION": f"127.0.0.1:{express.http_port}"}
    first, behind = start(app.row, server, PROXY="", **application), start(app.row, server, **application)
    # The first has no proxy before it: both limit its peer, and no address that the caller has made up.
    assert keys(first, server, X_Forwarded_For="192.0.2.7") == 2 * ["hello:127.0.0.1"]
    for _ in range(LIMIT + 2):
        caller = app.caller()
        assert behind.get("/", caller).numbers("Limit", "Remaining") == (200, LIMIT, 2)
        assert {*server(f"KEYS *{caller}")} == {f"hello:{caller}", f"nginx_hello:{caller}"}
    for key in "hello", "nginx_hello":
        caller = app.caller()
        server(f"CL.THROTTLE {key}:{caller} 2 1 86400 2")
        for status in 200, 429:
            *shown, wait = behind.get("/", caller).numbers("Limit", "Remaining", "Retry-After")
            assert shown == [status, LIMIT, 0] and bool(wait) == (status == 429), key
