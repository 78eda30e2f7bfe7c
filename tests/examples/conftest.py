"""The fixtures of the tests of the examples. A situation is a test with the applications that it runs on:

    @on(named("flask", "nginx"), NUM_PROXIES=1)
    def test_a_caller_is_charged(app, server):
        assert app.passed(4, app.caller()) == 3
        assert server("DBSIZE") == 1

`app` is an Application of applications.py, in which each application is a line. It is started once for situations with
the same environment, and calls `server`, a new Server, by way of `app.address`: those, and the failures of a network,
are in servers.py. An application waits an hour for Redis, however slow the machine: a test without an answer needs
`@on(…, REDIS_TIMEOUT=1)`. `program` is an application that ends by itself: `@on(PROGRAMS, "program")`.
"""

import functools
from types import SimpleNamespace

import pytest

from applications import Application
from servers import Clock, Server


@pytest.fixture
def new_server(request):
    """Makes another server: new_server("--cluster-enabled", "yes", module=False)."""
    return functools.partial(Server, request)


@pytest.fixture
def server(new_server):
    return new_server()


@pytest.fixture
def clock(tmp_path):
    """A wall clock that only the test moves: new_server(environment=clock.environment)."""
    return Clock(tmp_path)


@pytest.fixture
def start(request):
    """Starts one more application: start(app.row, server, NUM_PROXIES=1)."""
    return lambda row, server, **environment: Application(request, row, environment).start(server)


@pytest.fixture
def program(request):
    return Application(request, *request.param)


@pytest.fixture(scope="session")
def running(request):
    """An application that runs until another one is needed, or with another environment. It has no server at first."""
    return Application(request, *request.param).start(SimpleNamespace(port=1))


@pytest.fixture
def app(running, server):
    running.address.fates("CL.")
    running.finds(server)
    return running
