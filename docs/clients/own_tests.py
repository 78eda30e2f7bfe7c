"""Tests of an application's limits, on a server of their own.

To run this file, beside redis_py.py: RUN=/path/to/redis-cell/scripts/run python3 own_tests.py
"""

import os
import socket
import subprocess
import time
import unittest

# The server has a port of its own, which the application reads when it is imported.
with socket.create_server(("127.0.0.1", 0)) as listener:
    PORT = str(listener.getsockname()[1])
os.environ["REDIS_URL"] = f"redis://127.0.0.1:{PORT}"

from redis_py import answer, ask, client, throttle


class Login(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = subprocess.Popen([os.environ["RUN"]], env={**os.environ, "PORT": PORT}, stdout=subprocess.DEVNULL)
        cls.enterClassContext(server)
        cls.addClassCleanup(server.terminate)
        while ask(bool, "PING") is None:
            assert server.poll() is None, "the server did not start"
            time.sleep(0.1)

    def setUp(self):
        # A limiter without a key is full.
        client.delete("login:alice")

    def test_the_fourth_attempt_is_refused(self):
        statuses = [answer(throttle("login:alice", 2, 1, 60))[0] for _ in range(4)]
        self.assertEqual(statuses, [200, 200, 200, 429])

    def test_a_token_comes_back(self):
        # 600 ms stand for a minute of the application.
        call = "CL.PTHROTTLE", "login:alice", 0, 1, 600
        self.assertEqual(client.execute_command(*call)[0], 0)
        time.sleep(client.execute_command(*call)[3] / 1000)
        self.assertEqual(client.execute_command(*call)[0], 0)


if __name__ == "__main__":
    unittest.main()
