"""Tests of an application's limits, on a server of their own.

To run this file, beside redis_py.py and after `pip install pytest redis`:
RUN=/path/to/redis-cell/scripts/run python3 -m pytest own_tests.py
"""

import os
import socket
import subprocess
import time

import pytest

# The server has a port of its own, which the application reads when it is imported. Among other files of tests, this
# part stands in conftest.py, which pytest imports first: an application that is imported before has another server.
with socket.create_server(("127.0.0.1", 0)) as listener:
    PORT = str(listener.getsockname()[1])
os.environ["REDIS_URL"] = f"redis://127.0.0.1:{PORT}"

from redis_py import answer, ask, client, throttle


@pytest.fixture(scope="session", autouse=True)
def server():
    with subprocess.Popen([os.environ["RUN"]], env={**os.environ, "PORT": PORT}, stdout=subprocess.DEVNULL) as server:
        try:
            while ask(bool, "PING") is None:
                assert server.poll() is None, "the server did not start"
                time.sleep(0.1)
            yield server
        finally:
            server.terminate()


def test_the_fourth_attempt_is_refused():
    # A limiter without a key is full.
    client.delete("login:alice")
    assert [answer(throttle("login:alice", 2, 1, 60))[0] for _ in range(4)] == [200, 200, 200, 429]


def test_a_token_comes_back():
    client.delete("login:alice")
    # 600 ms stand for a minute of the application.
    call = "CL.PTHROTTLE", "login:alice", 0, 1, 600
    assert client.execute_command(*call)[0] == 0
    time.sleep(client.execute_command(*call)[3] / 1000)
    assert client.execute_command(*call)[0] == 0
