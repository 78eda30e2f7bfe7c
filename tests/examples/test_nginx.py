"""nginx: a request is charged however its address changes, and an application behind nginx has its own limits."""

import pytest

from applications import LIMIT, named, on

NGINX = named("nginx")
CHECK = "rewrite_by_lua_block { hello:check() }"
# Locations that change a request's address, or have words that come before a charge in the access phase.
CHANGED = {
    "in_server": CHECK,
    "break": "rewrite ^/break/(.*) /$1 break; access_by_lua_block { hello:check() }",
    "in_if": "if ($request_method = GET) { rewrite ^ /other break; } " + CHECK,
    "set_uri": "rewrite_by_lua_block { ngx.req.set_uri('/other') hello:check() }",
    "last": "rewrite ^ /inner last;",
    "exec": "rewrite_by_lua_block { ngx.exec('/inner') }",
    "try_files": "try_files /none @named;",
    "error_page": "error_page 404 = /inner; return 404;",
    "subrequest": "rewrite_by_lua_block { ngx.exit(ngx.location.capture('/inner').status) }",
    "auth_request": "auth_request /auth; " + CHECK,
    "deny": "deny all; " + CHECK,
    "satisfy": "satisfy any; allow all; " + CHECK,
}
FURTHER = {
    "/inner": CHECK,
    "@named": CHECK,
    "/auth": "return 401;",
    "/twice": CHECK + "try_files /none /inner;",
    "/page": CHECK + "error_page 429 = @page;",
    "@page": "return 429 Slowly;",
    "/two": "rewrite_by_lua_block { hello:check() login:check() }",
}
LOCATIONS = "rewrite ^/in_server/(.*) /in_server/other break; " + "".join(
    f"location {path} {{ {words} proxy_pass http://application; }} "
    for path, words in {**{f"/{how}/": words for how, words in CHANGED.items()}, **FURTHER}.items()
)


@on(NGINX, LOCATIONS=LOCATIONS)
@pytest.mark.parametrize("how", CHANGED)
def test_a_request_is_charged_however_its_address_changes(app, server, how):
    caller = app.caller()
    statuses = [app.get(f"/{how}/any", caller).status for _ in range(LIMIT + 2)]
    assert 429 not in statuses[:LIMIT] and statuses[LIMIT:] == [429, 429], statuses
    assert server("KEYS *" + caller) == [f"nginx_hello:{caller}"]


@on(NGINX, LOCATIONS=LOCATIONS)
def test_a_limited_location_that_leads_to_another_charges_twice(app):
    caller = app.caller()
    answers = [app.get("/twice", caller) for _ in range(2)]
    assert [(answer.status, answer.number("Remaining")) for answer in answers] == [(200, 1), (429, 0)]


@on(NGINX, LOCATIONS=LOCATIONS)
def test_two_limits_in_a_location_show_the_one_with_fewer_remaining(app, server):
    caller = app.caller()
    server(f"CL.THROTTLE nginx_login:{caller} 2 1 86400 1")
    answers = [app.get("/two", caller) for _ in range(3)]
    assert [(answer.status, answer.number("Remaining")) for answer in answers] == [(200, 1), (200, 0), (429, 0)]


@on(NGINX, LOCATIONS=LOCATIONS)
def test_a_page_of_its_own_and_one_of_another_origin_can_read_the_refusal(app):
    caller = app.caller()
    refused = [app.get("/page", caller) for _ in range(LIMIT + 1)][-1]
    assert (refused.status, refused.body, refused.number("Remaining")) == (429, "Slowly", 0)
    assert refused.number("Retry-After") > 0 and refused.headers["Access-Control-Allow-Origin"] == "*"
    assert "Retry-After" in refused.headers["Access-Control-Expose-Headers"]


@on(NGINX)
def test_every_version_of_http_and_a_head_are_charged(app):
    caller = app.caller()
    line = f"X-Forwarded-For: {caller}\r\nConnection: close\r\n\r\n"
    requests = [f"{word} HTTP/1.{minor}\r\nHost: a\r\n{line}" for word in ("GET /", "HEAD /") for minor in (0, 1)]
    assert [app.send(request.encode())[0].status for request in requests] == [200, 200, 200, 429]


QUOTA = "{ { 2, 1, 60 } }"


@pytest.mark.parametrize("setting", [
    *("nginxes = -1", "nginxes = 0 / 0", "timeout = -1", "port = '1'", f"new('name:b', {QUOTA})", f"new('', {QUOTA})"),
    *("new(nil, {})", "new('name', {})", "new('name', { { '2', 1, 60 } })", "new('name', { { 0 / 0, 1, 60 } })"),
    *(f"new('name', {QUOTA}, {{ {wrong} }})" for wrong in ("fail = 'open'", "remember = -1", "remember = 0 / 0")),
])
@on(NGINX)
def test_a_wrong_number_or_limit_stops_nginx_and_is_named(app, start, setting):
    with pytest.raises(AssertionError, match="name" if "new" in setting else setting.split()[0]):
        start(app.row, 1, SETTING=f"limits.{setting};")


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
