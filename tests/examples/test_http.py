"""The examples that serve HTTP: the address of a caller, several quotas, limits or routes, log-ins, and the counts."""

import time

import pytest

from applications import HTTP, LIMIT, Row, named, on, python
from packages import HERE

# Callers' addresses, and the address by which each is limited. nginx itself reads the header, and knows no zone.
ADDRESSES = [line.split() for line in (HERE / "addresses.txt").read_text().split("\n\n")[1].splitlines()]
DJANGO = {"django": "its throttle limits by limited_address, as Flask's does"}
DAY = 86400


def limited_by(app, server, **headers):
    """Returns the key that a request with these headers is charged to."""
    server("FLUSHALL")
    assert app.get("/", **headers).status == 200
    (key,) = server("KEYS *")
    return key.removeprefix("nginx_")


@on(HTTP, without=DJANGO)
def test_each_example_limits_the_same_address_or_network_behind_its_own_proxy(app, server):
    for word, limited in ADDRESSES:
        if app.row.name != "nginx" or "%" not in word:
            key = limited_by(app, server, X_Forwarded_For=f"10.0.0.1, {word}")
            assert key == f"hello:{limited}", word


@on(HTTP, without=DJANGO, PROXY="192.0.2.1")
def test_an_address_is_not_believed_if_no_proxy_has_added_it(app, server):
    assert limited_by(app, server, X_Forwarded_For="192.0.2.7") == "hello:127.0.0.1"


@on(HTTP)
def test_an_answer_has_the_headers_of_its_limit(app, server):
    caller = app.caller()
    for remaining in 2, 1, 0:
        answer = app.get("/", caller)
        shown = [answer.number(name) for name in ("Limit", "Remaining", "Retry-After")]
        assert (answer.status, shown) == (200, [LIMIT, remaining, None]), answer
    answer = app.get("/", caller)
    assert (answer.status, answer.number("Limit"), answer.number("Remaining")) == (429, LIMIT, 0), answer
    assert 0 < answer.number("Retry-After") <= DAY and answer.number("Reset") > 2 * DAY
