"""The examples that serve HTTP: the address of a caller, several quotas, limits or routes, log-ins, and the counts."""

import re

from applications import HTTP, LIMIT, named, on
from packages import HERE

# Callers' addresses, and the address by which each is limited.
ADDRESSES = [line.split() for line in (HERE / "addresses.txt").read_text().split("\n\n")[1].splitlines()]
LIKE_FLASK = {"django": "its throttle limits by limited_address, as Flask's decorator does"}
DAY = 86400


def limited_by(app, server, **headers):
    """Returns the keys that a request with these headers is charged to."""
    server("FLUSHALL")
    assert app.get("/", **headers).status == 200
    return [key.removeprefix("nginx_") for key in server("KEYS *")]


@on(HTTP, LIKE_FLASK)
def test_each_example_limits_the_same_address_or_network_behind_its_own_proxy(app, server):
    for word, limited in ADDRESSES:
        # nginx itself reads the header, and knows no zone.
        if app.row.name != "nginx" or "%" not in word:
            keys = limited_by(app, server, X_Forwarded_For=f"10.0.0.1, {word}")
            assert keys == [f"hello:{limited}"], word


@on(HTTP, LIKE_FLASK, PROXY="192.0.2.1")
def test_an_address_that_the_caller_makes_up_is_ignored(app, server):
    assert limited_by(app, server, X_Forwarded_For="192.0.2.7") == ["hello:127.0.0.1"]


@on(HTTP)
def test_an_answer_has_the_headers_of_its_limit(app):
    caller = app.caller()
    answers = [app.get("/", caller) for _ in range(4)]
    shown = [answer.numbers("Limit", "Remaining") for answer in answers]
    assert shown == [(200, LIMIT, 2), (200, LIMIT, 1), (200, LIMIT, 0), (429, LIMIT, 0)]
    assert all(answer.number("Retry-After") is None for answer in answers[:3])
    assert DAY - 600 <= answers[3].number("Retry-After") <= DAY and answers[3].number("Reset") > 2 * DAY


@on(named("django"))
def test_a_log_in_charges_two_limits_and_a_right_password_gives_back(app, server):
    def log_in(password):
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        return app.get("/login", "192.0.2.1", "POST", f"username=%20ALICE&password={password}", **form).status

    assert [log_in("correct+horse") for _ in range(5)] == [200] * 5
    assert [log_in("guess") for _ in range(4)] == [200, 200, 200, 429]
    assert server("CL.LOOK login_account:alice 2 1 86400")[2] == 0
    assert server("CL.LOOK login_address:192.0.2.1 19 60 3600")[2] == 17


@on(named("express", "express_ioredis", "nginx"))
def test_two_quotas_limit_by_the_one_that_decides_and_each_call_is_counted(app, server):
    """10 a second and 1,000 a day."""
    caller, names, before = app.caller(), ("Limit", "Remaining", "Quota", "Retry-After"), counts(app)
    assert app.get("/items", caller).numbers(*names) == (200, 10, 9, 1, None)
    # A state with all tokens of the second, and one token of the day.
    (key,), now = server(f"KEYS *items:{caller}"), int(server("TIME")[0])
    day = now + 999 * DAY // 1000
    server(f"SET {key} {now}000000000{day}000000000 EXAT {day}")
    assert app.get("/items", caller).numbers(*names) == (200, 1000, 0, 2, None)
    *shown, wait = app.get("/items", caller).numbers(*names)
    assert shown == [429, 1000, 0, 2] and 30 <= wait <= 87
    server.kill()
    # The process remembers that this caller is refused; a second one of nginx, which may get the call, does not.
    again = app.get("/items", caller)
    if again.status == 429:
        assert again.number("Remaining") is None and 30 <= again.number("Retry-After") <= 87
    assert again.status == 429 or app.row.processes > 1
    assert app.get("/", caller).status == 200 and app.get("/login", caller, "POST").status == 503
    by_itself = [0, 1, 0, 0] if again.status == 429 else [0, 0, 1, 0]
    expected = {"items": [2, 1, 0, 0], "login": [0, 0, 0, 1], "hello": [0, 0, 1, 0]}
    expected["items"] = [sum(both) for both in zip(expected["items"], by_itself)]
    assert {name: [now - then for now, then in zip(counts(app)[name], before[name])] for name in expected} == expected


def counts(app):
    """Returns the numbers of calls of each limit that ended as allowed, limited, share and closed. Each begins at 0."""
    found = re.findall(r'limit_calls_total\{limit="(?:nginx_)?(\w+)",result="(\w+)"\} (\d+)', app.get("/metrics").body)
    ways = {(name, way): int(count) for name, way, count in found}
    return {name: [ways[name, way] for way in ("allowed", "limited", "share", "closed")] for name, _ in ways}


@on(named("nginx"))
def test_the_peer_of_a_unix_socket_is_one_caller(app, server):
    app.get("/login_by_socket", "192.0.2.1")
    assert server("EXISTS nginx_hello:unix") == 1
