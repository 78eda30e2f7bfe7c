"""Calls on a network that loses two of three answers of the server, and then all. Prints how many calls were made."""

import os

import gateway
import redis


class Client(redis.Redis):
    def execute_command(self, *words):
        global lost
        answer = super().execute_command(*words)
        lost += 1
        if lost % losses:
            raise redis.TimeoutError()
        return answer


gate = gateway.Gateway(Client(port=int(os.environ["REDIS_PORT"])))
gateway.time.sleep = lambda seconds: None
gateway.time.monotonic = lambda: 0.0
for losses in 3, 99:
    lost = 0
    try:
        print(gateway.ask(gate, "acme", "alice", 8_000, lambda: ("the answer", 9_000)), lost)
    except redis.TimeoutError:
        print("no answer", lost)
