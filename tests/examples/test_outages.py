"""The whole examples in every failure: Redis passes at most a limit, the shares as many, and no closed call passes."""

import time
from signal import SIGCONT, SIGSTOP

import pytest

from applications import APPLICATIONS, LIMIT, named, on
from servers import Server, wait_for

# The calls at once in an outage: more than a pool has connections.
CALLS = 30
# Django REST framework has Flask's client.
CLIENTS = named("flask", "fastapi", "express", "express_ioredis", "nginx")
# The beginning of each failure, and its end: lines for the server, or a function.
FAILURES = {
    "crash": (Server.kill, Server.restart),
    "hang": (lambda server: server.process.send_signal(SIGSTOP), lambda server: server.process.send_signal(SIGCONT)),
    "no_right": ("ACL SETUSER default -cl.throttle -cl.mthrottle", "ACL SETUSER default +cl.throttle +cl.mthrottle"),
    "no_memory": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "no_replica": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    "a_replica": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    # A connection that is there would keep its login.
    "a_password": ("CONFIG SET requirepass secret; CLIENT KILL TYPE normal", "ACL SETUSER default nopass"),
}


@pytest.mark.parametrize("failure", FAILURES)
@on(APPLICATIONS)
def test_a_failure_passes_no_more_than_the_limit_and_the_share(app, server, failure):
    def happens(deed):
        deed(server) if callable(deed) else [server(line) for line in deed.split("; ")]

    (begin, end), caller, other = FAILURES[failure], app.caller(), app.caller()
    passed = app.passed(CALLS, caller)
    happens(begin)
    passed += app.passed(CALLS, caller)
    assert app.passed(10, other, closed=True) == 0
    # Each process of an application has its part of a share.
    part, others = LIMIT // app.row.processes, app.passed(CALLS, other)
    assert part <= others <= part * app.row.processes
    happens(end)
    others += app.passed(CALLS, other)
    app.finds(server)
    passed += app.passed(CALLS, caller) + app.passed(CALLS, caller)
    # After a crash, the server has forgotten what it allowed.
    assert LIMIT <= passed <= (3 if failure == "crash" else 2) * LIMIT
    assert others + app.passed(CALLS, other) <= 2 * LIMIT


@on(named("express", "express_ioredis"))
def test_a_client_pauses_where_a_proxy_accepts_its_connections_and_closes_them(app, server):
    server.kill()
    before = app.address.accepted
    time.sleep(1)
    # It connects twenty times a second. node-redis 4 by itself would thousands of times.
    assert app.address.accepted - before < 100


@pytest.mark.parametrize("fails_over", [True, False], ids=["failed_over", "silent"])
@on(CLIENTS)
def test_an_old_connection_is_left_after_a_failover_or_in_silence(app, server, new_server, fails_over):
    primary, caller = new_server() if fails_over else server, app.caller()
    passed = app.passed(CALLS, caller)
    app.address.lead_to(primary)
    server(f"REPLICAOF 127.0.0.1 {primary.port}") if fails_over else app.address.silence()
    passed += app.passed(CALLS, caller)
    app.finds(primary)
    passed += app.passed(CALLS, caller)
    assert LIMIT <= passed <= (3 if fails_over else 2) * LIMIT
    # Each of the old connections fails once, and none twice.
    wait_for("Redis decides each call", lambda: all(app.passed(1, app.caller(), closed=True) for _ in range(CALLS)))


# An hour is longer than any machine takes: Redis decides each call.
@on(APPLICATIONS, TIMEOUT=3600)
def test_the_limit_passes_of_many_calls_at_once(app):
    """Flask and Django have a thread for each call and a queue of 128: there a thousand would say no more."""
    for closed, calls in (True, 100), (False, 100 if app.row.name in ("flask", "django") else 1000):
        assert app.passed(calls, app.caller(), closed) == LIMIT


@on(CLIENTS)
@pytest.mark.parametrize("fate", ["late", "dripping"])
def test_a_late_answer_is_not_taken_for_another_callers(app, fate):
    """A caller whose limit is used up calls while the answers to another are on their way, which fill the pool."""
    limited, other = app.caller(), app.caller()
    wait_for("a limited caller", lambda: app.passed(4, limited, closed=True) == 0)
    app.address.fates("CL.", *[fate] * 99)
    for calls in 1, CALLS:
        app.passed(calls, other, closed=True)
        assert app.passed(1, limited, closed=True) == 0


@on(CLIENTS)
@pytest.mark.parametrize("fate", ["lost", "broken off"])
def test_a_call_without_an_answer_is_made_once(app, server, fate):
    caller = app.caller()
    app.address.fates("CL.", fate)
    app.passed(1, caller)
    app.finds(server)
    (key,) = server(f"KEYS *{caller}")
    assert server(f"CL.LOOK {key} 2 1 86400")[2] == LIMIT - 1


NUMBERS = b":0\r\n:3\r\n:2\r\n:-1\r\n:60\r\n"
# Replies of another shape, as of a proxy, another server or another module; the second row is of RESP3.
REPLIES = [
    *(b"*0\r\n", b"*-1\r\n", b"*-7\r\n", b"*x\r\n", b"$0\r\n\r\n", b"$-1\r\n", b"$-7\r\n", b":0\r\n", b":1\r\n"),
    *(b"*5\r\n" + 5 * item for item in (b",0.5\r\n", b",nan\r\n", b"#f\r\n", b"_\r\n", b"(99999999999999999999\r\n")),
    *(b"*5\r\n" + 5 * item for item in (b"$-1\r\n", b"+0\r\n", b"$1\r\n0\r\n", b"*1\r\n:0\r\n", b"-ERR no\r\n")),
    *(b"+OK\r\n", b"-MISCONF no\r\n", b"-CLUSTERDOWN no\r\n", b"-ERR no\r\n", b"-\r\n", b"\r\n", b"\0\r\n"),
    *(b"$5\r\nabcdefgh\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"%1\r\n:0\r\n:3\r\n", b"*1\r\n" * 100_000),
    *(b"*1\r\n:0\r\n", b"*4\r\n" + NUMBERS[:-5], b"*6\r\n" + NUMBERS + b":1\r\n", b"*1\r\n*5\r\n" + NUMBERS),
]


# Some replies leave a client waiting for more.
@on(CLIENTS, TIMEOUT=0.5)
def test_a_reply_of_another_shape_is_no_answer(app, server):
    for reply in REPLIES:
        app.address.fates("CL.", *[reply] * 3)
        answer = app.get("/login", app.caller(), "POST")
        assert answer.numbers("Retry-After", "Remaining") == (503, 1, None), (reply, answer)
        wait_for("another answer", lambda: app.passed(1, app.caller(), closed=True))
