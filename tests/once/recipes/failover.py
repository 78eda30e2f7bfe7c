"""Runs a recipe's program, and then calls the server by the program's own client, once for each line of input.

Usage: failover.py PROGRAM
"""

import contextlib
import io
import os
import runpy
import sys

import redis

program = sys.argv[1]
with contextlib.redirect_stdout(io.StringIO()):
    client = runpy.run_path(program, run_name="__main__")["client"]
# The README's lines name no port.
client.connection_pool.connection_kwargs["port"] = int(os.environ["REDIS_PORT"])
for line in sys.stdin:
    try:
        client.execute_command(*line.split())
        print("an answer")
    except redis.RedisError as error:
        print(type(error).__name__)
