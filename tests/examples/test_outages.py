"""The whole examples, each through every failure of Redis.

Redis passes at most a caller's limit, the shares of all processes at most as many again, and a call that is closed
passes never without Redis.
"""

import select
from pathlib import Path

import pytest

from applications import APPLICATIONS, LIMIT, named, on
from servers import fates, late, unanswered, wait_for

# The calls at once in an outage: twice as many as a pool has connections.
CALLS = 40


def setting(line):
    def change(server, address, new_server):
        server(line)
        # A connection that is there keeps its login.
        address.break_off()

    return change


def led_to(*settings, **named):
    def lead(server, address, new_server):
        address.lead_to(new_server(*settings, **named))
        address.break_off()

    return lead


def led_back(server, address, new_server):
    address.lead_to(server)
    address.break_off()


def failed_over(server, address, new_server):
    address.lead_to(new_server())
    server(f"REPLICAOF 127.0.0.1 {address.server.port}")


# The failures: how each begins and ends, and how many calls of a caller Redis passes at most. A server that was killed
# has forgotten what it allowed before, and a second server may not know it. One without an end is over for new
# connections: only those that were there meet it.
FAILURES = {
    "killed": (lambda server, *_: server.kill(), lambda server, *_: server.restart(), 2 * LIMIT),
    "stopped": (lambda server, *_: server.signal("STOP"), lambda server, *_: server.signal("CONT"), LIMIT),
    "no_right": (
        setting("ACL SETUSER default -cl.throttle -cl.mthrottle"),
        setting("ACL SETUSER default +cl.throttle +cl.mthrottle"), LIMIT,
    ),
    "no_memory": (setting("CONFIG SET maxmemory 1"), setting("CONFIG SET maxmemory 0"), LIMIT),
    "no_replica": (setting("CONFIG SET min-replicas-to-write 1"), setting("CONFIG SET min-replicas-to-write 0"), LIMIT),
    "a_replica": (setting("REPLICAOF 127.0.0.1 1"), setting("REPLICAOF NO ONE"), LIMIT),
    "a_password": (setting("CONFIG SET requirepass secret"), setting("ACL SETUSER default nopass"), LIMIT),
    "no_snapshot": (lambda server, *_: server.fail_to_save(), lambda server, *_: server("CONFIG SET save", ""), LIMIT),
    "no_module": (led_to(module=False), led_back, LIMIT),
    "no_slots": (led_to("--cluster-enabled", "yes"), led_back, LIMIT),
    "silence": (lambda server, address, _: address.silence(), None, LIMIT),
    "failed_over": (failed_over, None, 2 * LIMIT),
}


@on(APPLICATIONS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_passes_no_more_than_the_limit_and_the_share(app, server, address, new_server, failure):
    begin, end, limit = FAILURES[failure]
    caller = app.caller()
    before = app.passed(CALLS, caller)
    begin(server, address, new_server)
    meanwhile = app.passed(CALLS, caller)
    if end:
        other = app.is_alone()
        end(server, address, new_server)
        assert app.passed(CALLS, other) <= LIMIT
    app.finds(address.server)
    assert LIMIT <= before + meanwhile + app.passed(CALLS, caller) <= limit + LIMIT
    assert app.passed(CALLS, caller) == 0


# An hour is longer than any machine takes: Redis decides each call.
@on(APPLICATIONS, TIMEOUT=3600)
@pytest.mark.parametrize("calls, closed", [(200, False), (200, True), (1000, False)])
def test_the_limit_passes_of_many_calls_at_once(app, calls, closed):
    assert app.passed(calls, app.caller(), closed) == LIMIT


@on(APPLICATIONS, PROCESSES=2)
def test_two_applications_together_pass_at_most_the_limit_without_redis(app, server, address, start):
    both = app, start(app.row, address.port, app.version, PROCESSES=2)
    both[1].finds(server)
    caller = app.caller()
    assert sum(one.passed(CALLS, caller) for one in both) == LIMIT
    server.kill()
    for one in both:
        assert one.passed(CALLS, "192.0.2.2") in app.share(processes=2)


@on(APPLICATIONS)
@pytest.mark.parametrize("slow", [late(3), late(0.3, size=1)], ids=["late", "dripping"])
def test_a_late_answer_is_not_taken_for_another_callers(app, address, slow):
    """A caller whose limit is used up calls while the answer to another is on its way."""
    limited, other = app.caller(), app.caller()
    wait_for("a limited caller", lambda: app.passed(4, limited, closed=True) == 0)
    address.filter = slow
    app.passed(1, other, closed=True)
    assert app.passed(1, limited, closed=True) == 0


@on(APPLICATIONS)
@pytest.mark.parametrize("fate", ["lost", "broken off"])
def test_a_call_without_an_answer_is_made_once(app, server, address, fate):
    caller = app.caller()
    address.filter = fates("CL.", fate)
    app.passed(1, caller)
    app.finds(server)
    (key,) = server(f"KEYS *{caller}")
    assert server(f"CL.LOOK {key} 2 1 86400")[2] == LIMIT - 1


@on(named("redis_py", "redis_asyncio"))
def test_a_call_waits_no_longer_than_three_times_timeout_and_is_not_repeated(app, address, start):
    """A call waits for a free connection, for a new one, and for the reply, each for TIMEOUT at most: with a TIMEOUT of
    an hour it has no answer when one of 10 ms has. At one port nobody accepts a connection, at the other nobody
    replies. A pool of 20 connections gets 40 calls at once."""
    heard = []
    address.filter = lambda connection, to_the_server, data: heard.append(data) or []
    with unanswered() as port:
        # 02 is a connection that is not accepted yet.
        is_waiting = lambda: f":{port:04X} 02" in Path("/proc/net/tcp").read_text()
        for asked, waits in (port, is_waiting), (address.port, lambda: heard):
            hour, short = (start(app.row, asked, app.version, TIMEOUT=timeout) for timeout in (3600, 0.01))
            print(40, "192.0.2.1 share", file=hour.process.stdin, flush=True)
            wait_for("the calls of an hour", waits)
            assert short.passed(40, "192.0.2.1") == LIMIT
            assert not select.select([hour.process.stdout], [], [], 0)[0], "it has not waited"
    assert len(heard) <= 20 + 40 and all(b"CL.THROTTLE" in data for data in heard), heard
