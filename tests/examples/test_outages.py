"""The whole examples, each through every failure of Redis.

Redis passes at most a caller's limit, the share of the process at most as many again, and a call that is closed passes
never without Redis.
"""

import pytest

from applications import APPLICATIONS, LIMIT, on

# The calls at once in an outage.
CALLS = 60
LEAD_TO_NO_MODULE, LEAD_TO_NO_SLOTS, SILENCE, FAIL_OVER = "lead to no module", "lead to no slots", "silence", "fail over"
SETTINGS = [
    ("ACL SETUSER default -cl.throttle -cl.mthrottle", "ACL SETUSER default +cl.throttle +cl.mthrottle"),
    ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ("CONFIG SET requirepass secret", "ACL SETUSER default nopass"),
]


def setting(line):
    def change(server):
        server(line)
        # A connection that is there keeps its login.
        server("CLIENT KILL TYPE normal SKIPME yes")

    return change


# The failures: how each begins and ends, and how many calls of a caller Redis passes at most. A server that was killed
# has forgotten what it allowed before.
FAILURES = {
    "killed": (lambda server: server.kill(), lambda server: server.restart(), 2 * LIMIT),
    "stopped": (lambda server: server.signal("STOP"), lambda server: server.signal("CONT"), LIMIT),
    "without a snapshot": (lambda server: server.fail_to_save(), lambda server: server("CONFIG SET save", ""), LIMIT),
    **{begin: (setting(begin), setting(end), LIMIT) for begin, end in SETTINGS},
}


@on(APPLICATIONS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_passes_no_more_than_the_limit_and_the_share(app, server, failure):
    begin, end, limit = FAILURES[failure]
    caller = app.caller()
    before = app.passed(CALLS, caller)
    begin(server)
    meanwhile = app.passed(CALLS, caller)
    other = app.is_alone()
    end(server)
    assert app.passed(CALLS, other) <= LIMIT
    app.finds(server)
    assert LIMIT <= before + meanwhile + app.passed(CALLS, caller) <= limit + LIMIT
    assert app.passed(CALLS, caller) == 0
