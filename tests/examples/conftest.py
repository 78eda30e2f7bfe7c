"""The fixtures. A test names the applications or programs that it runs, which are rows of applications.py.

`app` serves HTTP, and calls `server` through `app.address`, which can fail like a network. It waits an hour for Redis:
a test in which Redis does not answer needs `REDIS_TIMEOUT=1`. A `program` exits by itself.
"""

import pytest

from applications import Application
from servers import clock, new_server, server


@pytest.fixture
def program(request):
    return Application(request, *request.param)


@pytest.fixture
def app(request, server):
    return Application(request, *request.param).start(server)
