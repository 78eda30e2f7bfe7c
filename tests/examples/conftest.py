"""The fixtures of the tests of the examples. A test names the applications, or the programs, that it runs:

    @on([FLASK, EXPRESS], REDIS_TIMEOUT=1)
    def test_a_caller_is_charged(app, server):
        assert app.passed(4, app.caller()) == 3
        assert server("DBSIZE") == 1

`app` is an Application of applications.py, which has them in a table. It serves HTTP, and calls `server`, a Server,
through `app.address`: those, and the failures of a network, are in servers.py. It waits an hour for Redis, however
slow the machine: a test without an answer needs `REDIS_TIMEOUT=1`. A `program` ends by itself.
"""

import functools

import pytest

from applications import Application
from servers import Clock, Server


@pytest.fixture
def new_server(request):
    """Makes another server: new_server("--cluster-enabled", "yes", module=False)."""
    return functools.partial(Server, request)


@pytest.fixture
def server(request, new_server):
    """A server. If the test has a `clock`, it has the server's."""
    clock = "clock" in request.fixturenames and request.getfixturevalue("clock")
    return new_server(environment=clock.environment if clock else {})


@pytest.fixture
def clock(tmp_path):
    """A wall clock that only the test moves: new_server(environment=clock.environment)."""
    return Clock(tmp_path)


@pytest.fixture
def program(request):
    return Application(request, *request.param)


@pytest.fixture
def app(request, server):
    return Application(request, *request.param).start(server)
