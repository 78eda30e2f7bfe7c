"""The fixtures. A test names the applications or programs that it runs, which are rows of applications.py.

`app` serves HTTP, and calls `server` through `app.address`, which can fail like a network. It waits an hour for Redis:
a test in which Redis does not answer needs `REDIS_TIMEOUT=1`. A `program` exits by itself.
"""

import functools

import pytest

from applications import Application
from servers import Clock, Server


@pytest.fixture
def new_server(request):
    """Starts another server: new_server("--cluster-enabled", "yes")."""
    return functools.partial(Server, request)


@pytest.fixture
def server(request, new_server):
    """A server. If the test has a `clock`, it is the server's."""
    clock = "clock" in request.fixturenames and request.getfixturevalue("clock")
    return new_server(environment=clock.environment if clock else {})


@pytest.fixture
def clock(tmp_path):
    """A wall clock that only the test moves. For a second server: new_server(environment=clock.environment)."""
    return Clock(tmp_path)


@pytest.fixture
def program(request):
    return Application(request, *request.param)


@pytest.fixture
def app(request, server):
    return Application(request, *request.param).start(server)
