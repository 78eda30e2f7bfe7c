"""Servers to measure, and the load on them."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

import redis

from contestants import CONTESTANTS
from places import MODULE, PARTS, SERVER, WORK

# Connections and calls sent at once by each.
ONE_BY_ONE, PIPELINED = (16, 1), (8, 64)

CORE_OF_SERVER, CORE_OF_LOAD = (sorted(os.sched_getaffinity(0)) * 2)[:2]


class Server:
    """A server on a free port, with a module, on a core of its own; and a client of it."""

    def __init__(self, module=None, arguments=(), wrapper=()):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = tempfile.mkdtemp(prefix="bench-")
        self.process = subprocess.Popen(
            [*wrapper, SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder]
            + ["--loadmodule", str(module or MODULE), "--slowlog-log-slower-than", "-1", *arguments],
            preexec_fn=lambda: os.sched_setaffinity(0, {CORE_OF_SERVER}),
            stdout=open(f"{self.folder}/log", "w"),
            stderr=subprocess.STDOUT,
        )
        self.client = redis.Redis(port=self.port, socket_timeout=60)
        for _ in range(600):
            try:
                self.client.ping()
                break
            except redis.ConnectionError:
                if self.process.poll() is not None:
                    sys.exit(f"bench: the server did not start:\n{pathlib.Path(self.folder, 'log').read_text()}")
                time.sleep(0.05)
        self.scripts = {script.name: self.client.script_load(script.read_text()) for script in PARTS.glob("*.lua")}

    def cpu(self):
        info = self.client.info("cpu")
        return info["used_cpu_user"] + info["used_cpu_sys"]

    def memory(self):
        return self.client.info("memory")["used_memory"]

    def replicated(self):
        return self.client.info("replication")["master_repl_offset"]

    def load(self, call, length, keys, first=None, shape=PIPELINED):
        """Calls by the load's process: so many in turn from the first key on, or at random for so long ("1.5s")."""
        words = [self.scripts.get(word, word) for word in call.split()]
        order = "random" if first is None else first
        output = subprocess.run(
            [WORK / "load", *map(str, (self.port, *shape, length, keys, order)), *words],
            preexec_fn=lambda: os.sched_setaffinity(0, {CORE_OF_LOAD}),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        return Load(*map(float, output.split()))

    def prepare(self, contestant, keys):
        """An empty server, but for the keys as the contestant wants to find them."""
        self.client.flushall()
        if not contestant.fresh:
            self.load(contestant.before or contestant.call, keys, keys, 0)

    def stop(self):
        self.client.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


Load = namedtuple("Load", "calls limited seconds p50 p99 p999")


@contextlib.contextmanager
def servers(*arguments, wrapper=()):
    """One for each module that has a contestant."""
    started = {module: Server(module, arguments, wrapper) for module in {c.module: None for c in CONTESTANTS}}
    try:
        yield started
    finally:
        for server in started.values():
            server.stop()
