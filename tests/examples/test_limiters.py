"""The storages for limiters that people have: the burst, the wait, no answer, and what a limiter itself asks of them."""

import subprocess
import sys
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from applications import (
    APPLICATIONS, DJANGO, ENVIRONMENT, EXPRESS, EXPRESS_IOREDIS, FALLBACKS, FASTAPI, FASTIFY, FLASK, FORM, HONO, LIMIT,
    NEST, SLOWAPI, on,
)
from servers import Server, wait_for

NODE = [EXPRESS, EXPRESS_IOREDIS, HONO, FASTIFY, NEST]
# The first of three tokens a day is back after eight hours.
HOURS_8 = 8 * 3600


@on(APPLICATIONS)
def test_of_200_concurrent_requests_the_burst_passes_with_a_bounded_number_of_connections(app, server):
    before = app.address.accepted
    # The server replies to none before all have been sent.
    server.process.send_signal(SIGSTOP)
    assert app.passed(200, app.caller(), True, sent=lambda: server.process.send_signal(SIGCONT)) == LIMIT
    assert app.address.accepted - before <= (1 if app.row in NODE else 20)


@on(APPLICATIONS)
def test_a_request_passes_when_the_reply_to_the_last_one_said_so(app, server, new_server, clock):
    # The connections to the first server end with it.
    server.kill()
    app.finds(new_server(environment=clock.environment))
    caller = app.caller()
    assert app.passed(LIMIT, caller, closed=True) == LIMIT
    status, wait = app.get("/login", caller, "POST", Content_Type=FORM).numbers("Retry-After")
    assert status == 429
    if app.row is SLOWAPI:
        # It has no header by default.
        assert wait is None
    else:
        # Flask-Limiter adds up to a second.
        assert wait - HOURS_8 in ((0, 1) if app.row is FLASK else (0,))
    clock.set(clock.now + (HOURS_8 - 1) * 10**9)
    assert app.passed(1, caller, closed=True) == 0
    clock.set(clock.now + 10**9)
    assert app.passed(2, caller, closed=True) == 1


@on([row for row in APPLICATIONS if row is not FASTAPI])
def test_a_limit_of_0_refuses_each_request_and_is_no_outage(app):
    status, wait = app.get("/zero", app.caller()).numbers("Retry-After")
    assert status == 429 and (wait is None or wait > 0)


# How each failure begins, and how it ends. After a hang, a replica or a crash, the address leads to another server.
FAILURES = {
    "crash": (Server.kill, None),
    "hang": (lambda server: server.process.send_signal(SIGSTOP), None),
    "replica": (lambda server: server("REPLICAOF 127.0.0.1 1"), None),
    "permission": (lambda server: server("ACL SETUSER default -cl.throttle"), "ACL SETUSER default +cl.throttle"),
    # A connection that is open would stay logged in.
    "password": (lambda server: (server("CONFIG SET requirepass secret"), server("CLIENT KILL TYPE normal")),
                 "ACL SETUSER default nopass"),
}


@pytest.mark.parametrize("failure", FAILURES)
@on(APPLICATIONS, REDIS_TIMEOUT=1)
def test_without_an_answer_a_closed_limit_refuses_all_and_a_fallback_passes_its_own(app, server, new_server, failure):
    begin, end = FAILURES[failure]
    begin(server)
    refusal = app.get("/login", app.caller(), "POST", Content_Type=FORM)
    assert refusal.numbers("Retry-After") == (503, None if app.row is NEST else 1)
    assert app.passed(10, app.caller(), closed=True) == 0
    if app.row in FALLBACKS:
        # Flask-Limiter and slowapi notice the failure with one request: others at that moment get 503.
        wait_for("the fallback decides", lambda: app.passed(1, app.caller()))
        assert app.passed(10, app.caller()) == LIMIT
    if end:
        server(end)
    else:
        server = new_server()
    app.finds(server)
    # Each limiter asks again at its own pace whether Redis is back.
    if app.row in FALLBACKS:
        wait_for("Redis decides again", lambda: app.passed(1, app.caller()) and len(server("KEYS *")) > 1)


@on([FLASK, DJANGO, EXPRESS, EXPRESS_IOREDIS])
def test_half_of_a_surrogate_pair_is_a_key_and_no_outage(app, server):
    server("FLUSHALL")
    assert app.get("/surrogate").status == 200 and server("DBSIZE") == 1


def status_of(app, path, caller, status=200):
    return app.get(f"{path}?status={status}", caller).status


@on([EXPRESS, EXPRESS_IOREDIS])
def test_express_counts_only_failures_or_only_successes(app):
    caller = app.caller()
    assert [status_of(app, "/failures", caller) for _ in range(9)] == 9 * [200]
    assert [status_of(app, "/failures", caller, 401) for _ in range(5)] == 3 * [401] + 2 * [429]
    caller = app.caller()
    assert [status_of(app, "/successes", caller, 404) for _ in range(9)] == 9 * [404]
    # A refused request has taken no token, and gives none back, whether it counts as a success or as a failure.
    assert [status_of(app, "/successes", caller) for _ in range(9)] == 3 * [200] + 6 * [429]
    assert [status_of(app, "/guesses", caller, 401) for _ in range(9)] == 3 * [401] + 6 * [429]


@on([EXPRESS], REDIS_TIMEOUT=1)
def test_express_gives_back_to_the_fallback_what_the_fallback_has_counted(app, server):
    caller = app.caller()
    server("ACL SETUSER default -cl.throttle")
    assert [status_of(app, "/outage", caller) for _ in range(9)] == 9 * [200]
    server("ACL SETUSER default +cl.throttle")
    assert [status_of(app, "/outage", caller, 401) for _ in range(4)] == 3 * [401] + [429]


@on([EXPRESS])
def test_express_has_several_quotas_on_one_key(app, server):
    server("FLUSHALL")
    caller = app.caller()
    assert [app.get("/quotas", caller).status for _ in range(3)] == [200, 200, 429]
    assert [server(f"STRLEN {key}") for key in server("KEYS *")] == [38]


@on([FASTIFY])
def test_fastify_has_a_limiter_for_each_route_with_a_limit_of_its_own(app, server):
    server("FLUSHALL")
    caller = app.caller()
    assert [app.get("/own", caller).status for _ in range(4)] == 3 * [200] + [429]
    assert app.passed(4, caller, closed=True) == LIMIT
    assert {app.get("/other", caller).status for _ in range(9)} == {200}
    assert [app.get("/handler", caller).status for _ in range(4)] == 3 * [200] + [429]
    assert len(server("KEYS *")) == 4
    # A limit that is no integer is an error of the caller's own.
    assert app.get("/mistake", caller).status == app.get("/mistake", caller).status == 500


@on([DJANGO])
def test_django_keeps_the_scopes_rates_and_keys_of_rest_framework(app, server):
    server("FLUSHALL")
    # An anonymous request is counted by two throttles, one of a user by one.
    assert [app.get("/user", "192.0.2.7").status for _ in range(4)] == 3 * [200] + [429]
    assert [app.get("/user", "192.0.2.7", X_Api_Key="alice").status for _ in range(5)] == 4 * [200] + [429]
    keys = "throttle_anon_192.0.2.7", "throttle_user_192.0.2.7", "throttle_user_alice"
    assert sorted(server("KEYS *")) == sorted(keys)


def test_the_fallback_of_limits_frees_its_memory(tmp_path):
    """After two seconds, 1,000 callers of one second are forgotten."""
    program = """
import time
import limits_storage
from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import STRATEGIES
storage = MemoryStorage()
limiter, limit = STRATEGIES["gcra"](storage), parse("3/second")
assert [limiter.hit(limit, "caller") for _ in range(4)] == [True, True, True, False]
for caller in range(1_000):
    limiter.hit(limit, str(caller))
assert len(storage.storage) > 900
while len(storage.storage) > 1:
    time.sleep(0.1)
    limiter.hit(limit, "caller")
"""
    path = f"{ENVIRONMENT['PYTHONPATH']}:{Path(__file__).parents[2] / 'docs/clients'}"
    subprocess.run([sys.executable, "-c", program], env={**ENVIRONMENT, "PYTHONPATH": path}, check=True)
