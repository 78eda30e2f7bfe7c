"""nginx: a request is charged however its address changes, and an application behind nginx has its own limits."""

import pytest

from applications import LIMIT, named, on

NGINX = named("nginx")
# Locations of nginx_locations.conf, each the name of what changes a request's address, or comes before its charge.
CHANGED = ["in_server", "break", "in_if", "set_uri", "last", "exec", "try_files", "error_page", "subrequest"]
EARLIER = ["auth_request", "deny", "satisfy"]


@on(NGINX)
@pytest.mark.parametrize("how", CHANGED + EARLIER)
def test_a_request_is_charged_however_its_address_changes(app, server, how):
    caller = app.caller()
    statuses = [app.get(f"/{how}/any", caller).status for _ in range(LIMIT + 2)]
    assert 429 not in statuses[:LIMIT] and statuses[LIMIT:] == [429, 429], statuses
    assert server("KEYS *" + caller) == [f"nginx_hello:{caller}"]


@on(NGINX)
def test_a_limited_location_that_leads_to_another_charges_twice(app):
    caller = app.caller()
    answers = [app.get("/twice", caller) for _ in range(2)]
    assert [(answer.status, answer.number("Remaining")) for answer in answers] == [(200, 1), (429, 0)]


@on(NGINX)
def test_two_limits_in_a_location_show_the_one_with_fewer_remaining(app, server):
    caller = app.caller()
    server(f"CL.THROTTLE nginx_login:{caller} 2 1 86400 1")
    answers = [app.get("/two", caller) for _ in range(3)]
    assert [(answer.status, answer.number("Remaining")) for answer in answers] == [(200, 1), (200, 0), (429, 0)]


@on(NGINX)
def test_a_page_of_its_own_and_one_of_another_origin_can_read_the_refusal(app):
    caller = app.caller()
    refused = [app.get("/page", caller) for _ in range(LIMIT + 1)][-1]
    assert (refused.status, refused.body, refused.number("Remaining")) == (429, "Slowly\n", 0)
    assert refused.number("Retry-After") > 0 and refused.headers["Access-Control-Allow-Origin"] == "*"
    assert "Retry-After" in refused.headers["Access-Control-Expose-Headers"]


@on(NGINX)
def test_every_version_of_http_and_a_head_are_charged(app):
    caller = app.caller()
    line = f"X-Forwarded-For: {caller}\r\nConnection: close\r\n\r\n"
    requests = [f"{word} HTTP/1.{minor}\r\nHost: a\r\n{line}" for word in ("GET /", "HEAD /") for minor in (0, 1)]
    assert [app.send(request.encode())[0].status for request in requests] == [200, 200, 200, 429]


@pytest.mark.parametrize("setting", ["nginxes = -1", "nginxes = 0 / 0", "timeout = -1", "port = '1'", "timeout = '2'"])
@on(NGINX)
def test_a_wrong_number_stops_nginx(app, start, setting):
    with pytest.raises(AssertionError, match=setting.split()[0]):
        start(app.row, 1, SETTING=f"limits.{setting};")


@pytest.mark.parametrize("new", [
    '"a:b", { { 2, 1, 60 } }', '"", { { 2, 1, 60 } }', "nil, { { 2, 1, 60 } }", '"a", {}', '"a", { { "2", 1, 60 } }',
    '"a", { { 0 / 0, 1, 60 } }', '"a", { { 1 / 0, 1, 60 } }', '"a", { { 2.5, 1, 60 } }', '"a", { { true, 1, 60 } }',
    '"a", { { 2, 1, 60 } }, { fail = "open" }', '"a", { { 2, 1, 60 } }, { remember = 0 / 0 }',
])
@on(NGINX)
def test_a_wrong_limit_stops_nginx(app, start, new):
    with pytest.raises(AssertionError, match="name|a: "):
        start(app.row, 1, SETTING=f"limits.new({new});")


@pytest.fixture
def behind(app, server, start):
    """nginx before Express, both with limits of three a day."""
    express = start(named("express")[0], server.port)
    return start(app.row, server.port, APPLICATION=f"127.0.0.1:{express.http_port}")


@on(NGINX)
def test_an_application_behind_nginx_limits_each_caller_by_itself(behind, server):
    for _ in range(LIMIT + 2):
        caller = behind.caller()
        answer = behind.get("/", caller)
        assert (answer.status, answer.number("Limit"), answer.number("Remaining")) == (200, 3, 2)
        assert {*server(f"KEYS *{caller}")} == {f"hello:{caller}", f"nginx_hello:{caller}"}


@on(NGINX)
def test_the_headers_are_of_one_limit_of_nginx_and_the_application(behind, server):
    caller = behind.caller()
    for key, taken, status, remaining in [("hello", 1, 200, 1), ("nginx_hello", 1, 200, 0), ("hello", 1, 429, 0)]:
        server(f"CL.THROTTLE {key}:{caller} 2 1 86400 {taken}")
        answer = behind.get("/", caller)
        shown = answer.status, answer.number("Remaining"), answer.number("Limit"), bool(answer.number("Retry-After"))
        assert shown == (status, remaining, LIMIT, status == 429)
