"""A call of a server that is stopped until the call has failed."""

import os
import signal

import gateway
import redis

gate = gateway.Gateway(redis.Redis(port=int(os.environ["REDIS_PORT"]), retry=None, socket_timeout=0.2))
gate.client.ping()
os.kill(int(os.environ["SERVER_PID"]), signal.SIGSTOP)
try:
    with gate.admitted("acme", "alice", 1):
        print("admitted")
except redis.TimeoutError:
    print("no answer")
os.kill(int(os.environ["SERVER_PID"]), signal.SIGCONT)
