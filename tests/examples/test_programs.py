"""The examples as programs, and limits.js in node's own test runner."""

import subprocess

from applications import named, on

CLIENTS = {"node_redis": "node_redis.js", "ioredis": "ioredis.js"}


@on(named(*CLIENTS))
def test_limits_js_passes_its_tests(app, new_server):
    # An hour is longer than any machine takes: Redis decides each call.
    variables = {"REDIS_PORT": str(new_server().port), "TIMEOUT": "3600", "CLIENT": CLIENTS[app.row.name]}
    command = ["node", "--test", app.environment["TESTS"] / "limits.test.js"]
    environment = {**app.variables(), **variables}
    ended = subprocess.run(command, cwd=app.folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
