"""A server that is measured."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import redis

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODULE = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/libredis_cell.so"
CORE_OF_SERVER, CORE_OF_LOAD = (sorted(os.sched_getaffinity(0)) * 2)[:2]


def on_core(core):
    return ["taskset", "--cpu-list", str(core)]


def version(executable):
    """Returns a line like "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 ..."."""
    return subprocess.run([executable, "--version"], capture_output=True, text=True).stdout.strip()


def wait(what, holds):
    """Waits until the condition holds, at most ten minutes: valgrind starts slowly on a busy machine."""
    for _ in range(12_000):
        with contextlib.suppress(redis.ConnectionError, KeyError):
            if holds():
                return
        time.sleep(0.05)
    sys.exit(f"bench: never came: {what}")


class Server:
    """A server with a module on a free port, and its client. The command `wrapper` starts the server, valgrind for
    example; without one, it gets a core of its own. Ends with the `with` block."""

    def __init__(self, executable, module, arguments=(), wrapper=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = tempfile.mkdtemp(prefix="bench-")
        # Redis 6.2 lacks this setting: it lets every client call DEBUG.
        debug = [] if version(executable).startswith("Redis server v=6.") else ["--enable-debug-command", "yes"]
        self.process = subprocess.Popen(
            [*(wrapper or on_core(CORE_OF_SERVER)), executable, "--port", str(self.port), "--bind", "127.0.0.1"]
            + ["--save", "", "--dir", self.folder, "--loadmodule", str(module or MODULE), *debug]
            + ["--slowlog-log-slower-than", "-1", "--repl-diskless-sync-delay", "0", *arguments],
            stdout=open(f"{self.folder}/log", "w"),
            stderr=subprocess.STDOUT,
        )
        self.client = redis.Redis(port=self.port, socket_timeout=600)

    def __enter__(self):
        wait("the server", lambda: self.process.poll() is not None or self.client.ping())
        if self.process.poll() is not None:
            sys.exit(f"bench: the server did not start:\n{pathlib.Path(self.folder, 'log').read_text()}")
        # The server must not delete an expired key before the measured call finds it.
        self.client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        # Redis 7 and later shrink the reply buffer of a client that pauses, and a call whose reply then goes to a list
        # takes 90 instructions more. Redis 6.2 lacks the command.
        with contextlib.suppress(redis.ResponseError):
            self.client.execute_command("DEBUG", "REPLYBUFFER", "RESIZING", "0")
        self.scripts = {script.name: self.client.script_load(script.read_text()) for script in HERE.glob("*.lua")}
        return self

    def __exit__(self, *_):
        self.client.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def words(self, command, key):
        """Returns the words of a command, with the key's name of 13 bytes, and with a script's sum for its file."""
        return [self.scripts.get(word, word).replace("KEY", f"k{key}") for word in command.split()]

    def call(self, calls, keys, first=0):
        """Makes these calls on each key, in pipelines of 64, and returns the last replies."""
        commands = [command for call in calls for command in call.split(" ; ")]
        made = [self.words(command, f"{key:012}") for command in commands for key in range(first, first + keys)]
        replies = []
        for start in range(0, len(made), 64):
            pipeline = self.client.pipeline(transaction=False)
            for words in made[start : start + 64]:
                pipeline.execute_command(*words)
            replies = pipeline.execute()
        return replies

    def benchmark(self, call, keys, calls):
        """Runs redis-benchmark with pipelines of 64 on 8 connections. Returns the server's CPU seconds for a call."""
        before = self.client.info("cpu")
        command = [*on_core(CORE_OF_LOAD), "redis-benchmark", "-p", str(self.port), "-n", str(calls), "-r", str(keys)]
        command += ["-c", "8", "-P", "64", *self.words(call, "__rand_int__")]  # of 12 digits
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = self.client.info("cpu")
        return sum(after[kind] - before[kind] for kind in ("used_cpu_user", "used_cpu_sys")) / calls
