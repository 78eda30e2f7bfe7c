"""Calls of docs/budgets/gateway.py that fail in several ways. Prints how each ends, and its calls of the server."""

import os
import signal
import types

import gateway
import redis


class Client(redis.Redis):
    """Loses all answers but one in `losses`."""

    def execute_command(self, *words):
        answer = super().execute_command(*words)
        self.calls += 1
        if self.calls % self.losses:
            raise redis.TimeoutError
        return answer


def ask(user, estimate, losses, fails=None):
    def model():
        if fails:
            raise fails
        return "an answer", 9_000

    client.calls, client.losses = 0, losses
    try:
        print(gateway.ask(client, "acme", user, estimate, model), client.calls)
    except (GeneratorExit, OSError, redis.RedisError) as error:
        # The server's refusals have subclasses of their own in newer versions.
        print("ResponseError" if isinstance(error, redis.ResponseError) else type(error).__name__, client.calls)


gateway.time = types.SimpleNamespace(sleep=lambda pause: None)
client = Client(port=int(os.environ["REDIS_PORT"]), socket_timeout=1)
for error in ConnectionRefusedError(), BrokenPipeError(), GeneratorExit():
    ask("alice", 3_000, 1, error)
ask("alice", -3_000, 1)
# The first two answers of each call are lost, and then all three.
for losses in 3, 99:
    ask("alice", 2_000, losses)
# The second try is refused at maxmemory, and then all are.
gateway.time.sleep = lambda pause: redis.Redis.execute_command(client, "CONFIG SET", "maxmemory", 1)
for losses in 2, 1:
    ask("alice", 2_000, losses)
redis.Redis.execute_command(client, "CONFIG SET", "maxmemory", 0)
os.kill(int(os.environ["SERVER_PID"]), signal.SIGSTOP)
ask("bob", 2_000, 1)
os.kill(int(os.environ["SERVER_PID"]), signal.SIGCONT)
