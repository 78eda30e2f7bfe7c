"""Tests of an application's limits, on a server of their own. To run this file, next to redis_py.py and after
`pip install pytest redis`: [MODULE=/usr/lib/redis/modules/libredis_cell.so] python3 -m pytest own_tests.py"""

import os
import socket
import subprocess
import time

import pytest

MODULE = os.environ.get("MODULE") or "/usr/lib/redis/modules/libredis_cell.so"
# The application reads this URL when it is imported. With several test files, put this into conftest.py.
with socket.create_server(("127.0.0.1", 0)) as listener:
    PORT = str(listener.getsockname()[1])
os.environ["REDIS_URL"] = f"redis://127.0.0.1:{PORT}"

from redis_py import answer, ask, client, throttle


@pytest.fixture(scope="session", autouse=True)
def server():
    with subprocess.Popen(["redis-server", "--port", PORT, "--save", "", "--loadmodule", MODULE]) as server:
        while ask(bool, "PING") is None:
            assert server.poll() is None, "the server did not start"
            time.sleep(0.1)
        yield server
        server.terminate()


def test_the_fourth_attempt_is_refused():
    # A limiter whose key does not exist is full.
    client.delete("login:alice")
    assert [answer(throttle("login:alice", 2, 1, 60))[0] for _ in range(4)] == [200, 200, 200, 429]
