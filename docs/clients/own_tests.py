"""Tests of an application's limits, on a server of their own.

To run this file, beside redis_py.py and limits.py: RUN=/path/to/redis-cell/scripts/run python3 own_tests.py
"""

import os
import subprocess
import tempfile
import time
import unittest

from limits import Limit
from redis_py import ask, connect, throttle

LOGIN = Limit("login", (2, 1, 60), fail="closed")


class Login(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The server has a socket in a folder of its own: any number of tests may run side by side.
        socket = cls.enterClassContext(tempfile.TemporaryDirectory()) + "/redis.sock"
        command = [os.environ["RUN"], "--unixsocket", socket]
        server = subprocess.Popen(command, env={**os.environ, "PORT": "0"}, stdout=subprocess.DEVNULL)
        cls.enterClassContext(server)
        cls.addClassCleanup(server.terminate)
        cls.client = cls.enterClassContext(connect(f"unix://{socket}"))
        while ask(cls.client, "PING") is None:
            assert server.poll() is None, "the server did not start"
            time.sleep(0.1)

    def setUp(self):
        # A limiter without a key is full.
        self.client.delete("login:alice")

    def test_the_fourth_attempt_is_refused(self):
        statuses = [throttle(self.client, LOGIN, "alice")[0] for _ in range(4)]
        self.assertEqual(statuses, [200, 200, 200, 429])

    def test_a_token_comes_back(self):
        # 600 ms stand for a minute of the application.
        call = "CL.PTHROTTLE", "login:alice", 0, 1, 600
        self.assertEqual(self.client.execute_command(*call)[0], 0)
        time.sleep(self.client.execute_command(*call)[3] / 1000)
        self.assertEqual(self.client.execute_command(*call)[0], 0)


if __name__ == "__main__":
    unittest.main()
