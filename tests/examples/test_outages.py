"""The examples while Redis does not decide: a closed limit passes none, a bounded one as many as its own limiter."""

from signal import SIGCONT, SIGSTOP

import pytest

from applications import APPLICATIONS, FORM, LIMIT, named, on
from packages import IS_DEBIAN
from servers import Server, wait_for

# The calls at once in an outage: more than a pool has connections.
CALLS = 30
# Django REST framework has Flask's client.
CLIENTS = named("flask", "fastapi", "express", "express_4", "nginx")
# The beginning of each failure, and its end: lines for the server, or a function. Some have no end: the address leads
# to another server, while the old connections, and new ones meanwhile, are silent, or lead to a replica.
FAILURES = {
    "crash": (Server.kill, Server.restart),
    "hang": (lambda server: server.process.send_signal(SIGSTOP), None),
    "a_replica": ("REPLICAOF 127.0.0.1 1", None),
    "no_right": ("ACL SETUSER default -cl.throttle -cl.mthrottle", "ACL SETUSER default +cl.throttle +cl.mthrottle"),
    # A connection that is there would keep its login.
    "a_password": ("CONFIG SET requirepass secret; CLIENT KILL TYPE normal", "ACL SETUSER default nopass"),
}


@pytest.mark.parametrize("failure", FAILURES)
@on(APPLICATIONS, REDIS_TIMEOUT=1)
def test_in_a_failure_a_closed_limit_passes_none_and_a_bounded_one_its_own(app, server, new_server, failure):
    def happens(deed):
        deed(server) if callable(deed) else [server(line) for line in deed.split("; ")]

    (begin, end), caller, accepted = FAILURES[failure], app.caller(), app.address.accepted
    happens(begin)
    assert app.passed(10, caller, closed=True) == 0
    assert app.passed(CALLS, caller) == LIMIT
    if end:
        happens(end)
    else:
        fails_anew = lambda: not app.passed(1, caller, closed=True) and app.address.accepted > accepted
        wait_for("a call opens another connection", fails_anew)
        server = new_server()
    app.finds(server)
    assert app.passed(CALLS, caller) <= LIMIT


@on(APPLICATIONS)
def test_without_an_answer_only_true_passes_and_a_refusal_says_when_to_ask_again(app, server):
    server.kill()
    refused = [app.get("/login", app.caller(), "POST", "username=bob", Content_Type=FORM)]
    if app.row.name == "nginx":
        caller = app.caller()
        *_, bounded = [app.get("/", caller) for _ in range(LIMIT + 1)]
        assert bounded.numbers("Limit", "Retry-After") == (429, None, 60)
        assert bounded.headers["Cache-Control"] == "no-store"
    else:
        assert app.get("/passes").numbers("Limit", "Retry-After") == (200, None, None)
        # The function is `async`, and its result no boolean.
        refused.append(app.get("/forgotten"))
    for answer in refused:
        assert answer.numbers("Limit", "Retry-After") == (503, None, 1)
        assert answer.headers["Cache-Control"] == "no-store"


@on(named("express", "express_4"))
def test_node_js_opens_a_connection_that_ended_while_idle_before_a_call_needs_it(app, server):
    accepted = app.address.accepted
    server("CLIENT KILL TYPE normal")
    wait_for("another connection is opened", lambda: app.address.accepted > accepted)
    app.finds(server)


@on(APPLICATIONS)
def test_the_limit_passes_of_200_calls_at_once_by_a_bounded_number_of_connections(app, server):
    before, most = app.address.accepted, {"nginx": 40, "express": 1, "express_4": 1}.get(app.row.name, 20)
    for closed in True, False:
        # The server answers none before all have asked.
        server.process.send_signal(SIGSTOP)
        assert app.passed(200, app.caller(), closed, sent=lambda: server.process.send_signal(SIGCONT)) == LIMIT
    assert app.address.accepted - before <= most


@on(CLIENTS, REDIS_TIMEOUT=1)
def test_a_late_answer_is_not_taken_for_another_callers(app):
    """A caller whose limit is used up calls while the answers to another are on their way, which fill the pool."""
    limited, other = app.caller(), app.caller()
    wait_for("a limited caller", lambda: app.passed(4, limited, closed=True) == 0)
    app.address.fates("CL.", *["late"] * 99)
    for calls in 1, CALLS:
        app.passed(calls, other, closed=True)
        assert app.passed(1, limited, closed=True) == 0


@pytest.mark.parametrize("fate", ["lost", "broken off"])
@on(CLIENTS, REDIS_TIMEOUT=1)
def test_a_call_without_an_answer_is_made_once(app, server, fate):
    def is_called():
        app.address.fates("CL.", fate)
        app.passed(1, caller := app.caller(), closed=True)
        return server(f"KEYS *{caller}")

    (key,) = wait_for("the server gets the call", is_called)
    app.finds(server)
    assert server(f"CL.LOOK {key} 2 1 86400")[2] == LIMIT - 1


NUMBERS = b":0\r\n:3\r\n:2\r\n:-1\r\n:60\r\n"
# Replies of another shape, as of a proxy, another server or another module: five items that are no numbers, lists of
# another length or depth, what is no list, and what is no reply.
REPLIES = [
    *(b"*5\r\n" + 5 * item for item in (b"+0\r\n", b"$1\r\n0\r\n", b"#f\r\n", b",0.5\r\n", b"$-1\r\n", b"-ERR no\r\n")),
    *(b"*0\r\n", b"*4\r\n" + NUMBERS[:-5], b"*6\r\n" + NUMBERS + b":1\r\n", b"*1\r\n*5\r\n" + NUMBERS),
    *(b"*1\r\n" * 100_000, b":1\r\n", b"+OK\r\n", b"$-1\r\n", b"*-1\r\n", b"-MISCONF no\r\n", b"*-7\r\n", b"\0\r\n"),
]


# Some replies leave a client waiting for more.
@on(CLIENTS, REDIS_TIMEOUT=0.5)
def test_a_reply_of_another_shape_is_no_answer(app):
    if IS_DEBIAN and app.row.name == "express":
        pytest.skip("node-redis 4.5.1 ends the process at a reply of -7 elements")
    for reply in REPLIES:
        app.address.fates("CL.", reply)
        answer = app.get("/login", app.caller(), "POST", "username=bob", Content_Type=FORM)
        assert answer.numbers("Retry-After", "Remaining") == (503, 1, None), reply
        wait_for("another answer", lambda: app.passed(1, app.caller(), closed=True))
