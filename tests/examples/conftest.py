"""The fixtures of the tests of the examples. A situation is a test with the applications that it runs on:

    @on(named("flask", "nginx"), TIMEOUT=3600)
    def test_a_caller_is_charged(app, server):
        assert app.passed(4, app.caller()) == 3
        assert server("DBSIZE") == 1

`app` is an Application of applications.py, in which each application is a line. It is started once for situations with
the same environment, and calls `server`, a new Server, by way of `address`: those, and the failures of a network, are
in servers.py. `program` is an application that ends by itself: `@on(PROGRAMS, "program")`.
"""

import resource
import sys
from types import SimpleNamespace

import pytest

import packages

# Before all others, which import redis. An empty path would be this folder.
sys.path[:0] = filter(None, [packages.PYTHON])

from applications import Application
from servers import Address, Clock, Server, passed_on

# A test makes many connections, and so do the programs that it calls.
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@pytest.fixture
def new_server(request):
    """Makes another server: new_server("--cluster-enabled", "yes", module=False)."""

    def made(*settings, **named):
        server = Server(*settings, **named)
        request.addfinalizer(server.kill)
        return server

    return made


@pytest.fixture
def server(new_server):
    return new_server()


@pytest.fixture
def clock(tmp_path):
    """A wall clock that only the test moves: new_server(environment=clock.environment)."""
    return Clock(tmp_path)


@pytest.fixture
def start(request):
    """Starts one more application: start(app.row, address.port, TIMEOUT=3600)."""

    def started(row, port, **environment):
        app = Application(row, environment)
        request.addfinalizer(app.stop)
        return app.start(port)

    return started


@pytest.fixture
def program(request):
    return Application(*request.param)


@pytest.fixture(scope="session")
def running(request):
    """An application that runs until another one is needed, or with another environment."""
    app = Application(*request.param)
    # It leads to no server at first.
    app.address = Address(SimpleNamespace(port=1))
    yield app.start(app.address.port)
    app.stop()


@pytest.fixture
def app(running, server):
    running.address.filter = passed_on
    running.address.lead_to(server)
    running.address.break_off()
    running.finds(server)
    return running


@pytest.fixture
def address(app):
    return app.address


def pytest_unconfigure(config):
    """Ends with a line that scripts/test reads: "98 passed, 1 failed, test_some_name, 2 left out"."""
    # A worker of pytest-xdist reports nothing.
    if reporter := config.pluginmanager.get_plugin("terminalreporter"):
        passed, failed, error, skipped = (reporter.stats.get(way, []) for way in "passed failed error skipped".split())
        names = "".join(f", {report.nodeid.split('::')[-1].split('@')[0]}" for report in failed + error)
        out = f", {len(skipped)} left out" if skipped else ""
        print(f"{len(passed)} passed, {len(failed + error)} failed{names}{out}")
