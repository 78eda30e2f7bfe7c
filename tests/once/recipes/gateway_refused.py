"""Calls of a server that refuses, or is gone for some time. Prints each result, and the moments of the tries."""

import os

import gateway
import redis


class Time:
    now = 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Client(redis.Redis):
    def execute_command(self, *words):
        global fills
        if words[0] != "FCALL":
            return super().execute_command(*words)
        tries.append(f"{gateway.time.now:.1f}")
        if gateway.time.now < gone:
            gateway.time.now += takes
            raise redis.ConnectionError()
        answer = super().execute_command(*words)
        if fills:
            fills = False
            self.config_set("maxmemory", 1)
            raise redis.TimeoutError()
        return answer


def model():
    return "the answer", 3_000


gate = gateway.Gateway(Client(port=int(os.environ["REDIS_PORT"])))
# The answer to the reservation is lost, and the memory is full. Then the server is gone for some time, in which a try
# takes some time.
for fills, gone, takes in (True, 0, 0), (False, 9, 0), (False, 9, 0.3), (False, 9, 0.7), (False, 0.5, 0):
    gateway.time, tries = Time(), []
    try:
        print(gateway.ask(gate, "acme", "alice", 8_000, model), *tries)
    except redis.RedisError as error:
        print(type(error).__name__, *tries)
    gate.client.config_set("maxmemory", 0)
