"""An answer of a model during which the server is killed."""

import os
import signal

import gateway
import redis

gate = gateway.Gateway(redis.Redis(port=int(os.environ["REDIS_PORT"]), retry=None))
gate.TIME = 0.03


def model():
    os.kill(int(os.environ["SERVER_PID"]), signal.SIGKILL)
    return "the answer", 9_000


print(gateway.ask(gate, "acme", "alice", 8_000, model))
