"""Answers that break off, each by another error, and one whose estimate is negative. Prints the errors."""

import os

import gateway
import redis

gate = gateway.Gateway(redis.Redis(port=int(os.environ["REDIS_PORT"])))


def hangs_up():
    raise error


for estimate, error in (4_000, GeneratorExit()), (2_000, BrokenPipeError()), (2_000, TimeoutError()), (-8_000, None):
    try:
        gateway.ask(gate, "acme", "alice", estimate, hangs_up)
    except (GeneratorExit, OSError, redis.ResponseError) as error:
        print(type(error).__name__)
