"""The servers that are measured, and the load on them."""

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

from places import MODULE, PARTS, SERVER, WORK

# The number of connections, and the calls that each sends at once.
ONE_BY_ONE, PIPELINED = (16, 1), (8, 64)

CORE_OF_SERVER, CORE_OF_LOAD = (sorted(os.sched_getaffinity(0)) * 2)[:2]


def on_core(core):
    return ["taskset", "--cpu-list", str(core)]


class Server:
    """A server with one module on a free port, and its client. The server is started by the command `wrapper`, valgrind
    for example; without one, it gets a core of its own."""

    def __init__(self, module=None, arguments=(), wrapper=None, executable=SERVER):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.module, self.executable = module, executable
        self.folder = tempfile.mkdtemp(prefix="bench-")
        # Redis 6.2 lacks this setting: it lets every client call DEBUG.
        debug = [] if is_redis_6(executable) else ["--enable-debug-command", "yes"]
        self.process = subprocess.Popen(
            [*(wrapper or on_core(CORE_OF_SERVER)), executable, "--port", str(self.port), "--bind", "127.0.0.1"]
            + ["--save", "", "--dir", self.folder, "--loadmodule", str(module or MODULE), *debug]
            + ["--slowlog-log-slower-than", "-1", "--repl-diskless-sync-delay", "0", *arguments],
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
        # The server must not delete an expired key before the measured call finds it.
        self.client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        self.scripts = {script.name: self.client.script_load(script.read_text()) for script in PARTS.glob("*.lua")}

    def cpu(self):
        info = self.client.info("cpu")
        return info["used_cpu_user"] + info["used_cpu_sys"]

    def memory(self):
        return self.client.info("memory")["used_memory"]

    def empty(self):
        """Deletes all keys at once: without SYNC, Valkey 9 would free them later, in another thread."""
        self.client.execute_command("FLUSHALL", "SYNC")

    def load(self, call, length, keys, order="random", shape=PIPELINED):
        """Runs the load program for `length` calls, or for a time like "1.5s", with the keys in an order of load.rs."""
        words = [self.scripts.get(word, word) for word in call.split()]
        command = [WORK / "load", *map(str, (self.port, *shape, length, keys, order)), *words]
        command = [*on_core(CORE_OF_LOAD), *command]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return Load(*map(float, output.split()))

    def prepare(self, contestant, keys):
        """Empties the server, and makes the keys that the contestant's calls need."""
        self.empty()
        if contestant.times:
            self.load(contestant.before, keys, keys, 0)
        if contestant.once:
            time.sleep(0.005)  # lets the short-lived keys expire

    @contextlib.contextmanager
    def replica(self):
        """Runs a replica of this server, and waits until it is connected."""
        replica = Server(self.module, ["--replicaof", "127.0.0.1", str(self.port)], executable=self.executable)
        try:
            while self.client.info("replication").get("slave0", {}).get("state") != "online":
                time.sleep(0.05)
            yield replica
        finally:
            replica.stop()

    def stop(self):
        self.client.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


Load = namedtuple("Load", "calls limited seconds")


def version(executable):
    """Returns a line like "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 ..."."""
    return subprocess.run([executable, "--version"], capture_output=True, text=True).stdout.strip()


def is_redis_6(executable):
    return version(executable).startswith("Redis server v=6.")


@contextlib.contextmanager
def servers(contestants, *arguments, executable=SERVER, wrapper=None, replicas=False):
    """Runs a server for each module of the contestants, and for each server a replica if `replicas` is true."""
    with contextlib.ExitStack() as stack:
        started = {}
        for module in {contestant.module: None for contestant in contestants}:
            started[module] = Server(module, arguments, wrapper, executable)
            stack.callback(started[module].stop)
            if replicas:
                stack.enter_context(started[module].replica())
        yield started
