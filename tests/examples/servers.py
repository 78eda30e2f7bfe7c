"""A real server with the module, and an address that leads to one of several, over a network that can fail."""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from packages import ROOT, TARGET

REQUIRE_ALL = "REQUIRE_ALL" in os.environ


def need(what, there, is_required=REQUIRE_ALL):
    """Leaves the test out if this machine lacks something, or fails it where scripts/test has installed all."""
    if not there:
        (pytest.fail if is_required else pytest.skip)(f"{what} not found")
    return there


def wait_for(what, ask):
    """Asks until the answer is true, and returns it; fails after 2,400 asks, which take two minutes or longer."""
    for number in range(2_400):
        if answer := ask():
            return answer
        time.sleep(min(2 + number, 50) / 1000)
    raise AssertionError(f"never happened: {what}")


def listening(port):
    with contextlib.suppress(OSError):
        return socket.create_server(("127.0.0.1", port), backlog=1024)


# Runs do not share ports: each reserves fifty, by listening on the first of them until it ends. The system gives none
# of them to a client.
BLOCK = next(filter(None, map(listening, range(30_100, 32_700, 50))))
PORTS = itertools.cycle(range(BLOCK.getsockname()[1] + 1, BLOCK.getsockname()[1] + 50))


def free_port():
    for port in PORTS:
        if listener := listening(port):
            listener.close()
            return port


@functools.cache
def module():
    """Returns the path of `MODULE`, or of the release build, which is made first."""
    if "MODULE" in os.environ:
        return str(Path(os.environ["MODULE"]).resolve())
    return cargo("release/libredis_cell.so", "--release")


@functools.cache
def redis_rs():
    """Returns the path of `REDIS_RS`, or of the example in Rust, which is made first."""
    return os.environ.get("REDIS_RS") or cargo("debug/examples/redis_rs", "--profile", "test", "--example", "redis_rs")


def cargo(file, *words):
    subprocess.run(["cargo", "build", "--locked", "--quiet", *words], cwd=ROOT, check=True)
    return str(TARGET.parent / file)


class Server:
    """A server with the module, if `module` is not False, and further settings, as on its command line.

    It has a free port and a folder of its own, and writes nothing to disk. `SERVER` names another executable than
    redis-server.
    """

    def __init__(self, *settings, module=True, environment={}):
        self.settings, self.module, self.environment = settings, module, environment
        self.folder = Path(tempfile.mkdtemp(prefix="server-", dir=TARGET))
        self.port, self.process = free_port(), None
        self.restart()

    def restart(self):
        """Starts the process again on its port, or on another if that is taken by now."""
        self.kill()
        for _ in range(5):
            if self.launch():
                self.client = redis.Redis(port=self.port, decode_responses=True)
                return
            self.port = free_port()
        raise AssertionError(f"the server did not start:\n{self.log()}")

    def launch(self):
        logged = len(self.log())
        words = ["--port", self.port, "--bind", "127.0.0.1", "--dir", self.folder, "--save", "", *self.settings]
        # A primary makes the first replica's snapshot at once; it does not wait for a second replica.
        words += ["--repl-diskless-sync-delay", 0]
        if self.module:
            words += ["--loadmodule", module()]
        # A server refuses to start in a locale that the machine lacks.
        environment = {**os.environ, "LC_ALL": "C", **self.environment}
        executable = os.environ.get("SERVER", "redis-server")
        need(executable, shutil.which(executable))
        with open(self.folder / "log", "ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen([executable, *map(str, words)], env=environment, **streams)
        # The log tells when it is ready: another process may answer on its port.
        is_ready = lambda: "Ready to accept connections" in self.log()[logged:]
        wait_for(f"a server is ready or gone, see {self.folder}/log", lambda: self.process.poll() or is_ready())
        return self.process.poll() is None

    def log(self):
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "log").read_text(errors="replace")
        return ""

    def __call__(self, line, *words):
        """Runs a command that is written as a user types it; further words are taken as they are."""
        return self.client.execute_command(*line.split(), *words)

    def kill(self):
        """Ends the process at once, as a crash does."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def signal(self, name):
        self.process.send_signal(getattr(signal, f"SIG{name}"))

    def fail_to_save(self):
        """Makes a snapshot fail, after which the server refuses writes until one succeeds."""
        self("CONFIG SET save", "3600 1")
        # A folder with the file's name makes the snapshot fail.
        (self.folder / "dump.rdb").mkdir()
        self("BGSAVE")
        wait_for("the snapshot fails", lambda: self("INFO persistence")["rdb_last_bgsave_status"] == "err")
        (self.folder / "dump.rdb").rmdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Clock:
    """The wall clock of a server with this `environment`: it stands where the test puts it, in ns since 1970."""

    def __init__(self, path):
        self.file = open(path, "wb", buffering=0)
        self.set(1_790_000_000_123_456_000)
        self.environment = {"LD_PRELOAD": self.library(), "CLOCK": path}

    def set(self, now):
        self.now = now
        # The second number shifts the clock by seconds.
        os.pwrite(self.file.fileno(), struct.pack("qq", now, 0), 0)

    @staticmethod
    @functools.cache
    def library():
        """Compiles the clock elsewhere, then moves it: another run may be using the old library at this moment."""
        new, library = tempfile.mktemp(dir=TARGET), TARGET / "clock-examples.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", new, ROOT / "tests/support/clock.c", "-ldl"], check=True)
        os.replace(new, library)
        return library


def passed_on(connection, to_the_server, data):
    return [data]


def late(seconds, size=65536):
    """Returns a filter that lets a reply wait, or drip: it waits before each piece of that many bytes."""

    def filter(connection, to_the_server, data):
        for start in range(0, len(data), size):
            time.sleep(0 if to_the_server else seconds)
            yield data[start : start + size]

    return filter


def saying(reply):
    """Returns a filter that answers each call of the module with these bytes, in the server's place."""

    def filter(connection, to_the_server, data):
        calls = data.count(b"CL.") if to_the_server else 0
        connection.client.sendall(reply * calls)
        return [] if calls else [data]

    return filter


def fates(command, *fates):
    """Returns a filter with the fates of the calls of this command, in their order; others pass.

    "unheard": the connection is closed before the server has the call; "broken off": it is closed instead of the
    answer; "lost": the answer and all after it on the connection are lost.
    """
    coming = iter(fates)

    def filter(connection, to_the_server, data):
        if to_the_server and command.encode() in data:
            connection.fate = connection.fate or next(coming, None)
        if connection.fate == "unheard" or connection.fate == "broken off" and not to_the_server:
            raise ConnectionAbortedError
        return [] if connection.fate and not to_the_server else [data]

    return filter


class Address:
    """An address that leads to one of several servers, as a Service of Kubernetes does.

    A connection stays with its first server. All its bytes go through `filter`, which returns the pieces to pass on,
    may write to `connection.client` and `connection.server`, may sleep, and raises an OSError to break off.
    """

    def __init__(self, *servers):
        self.filter, self.connections = passed_on, []
        self.lead_to(*servers)
        self.port = free_port()
        self.listener = listening(self.port)
        threading.Thread(target=self.accept, daemon=True).start()

    def lead_to(self, *servers):
        """Leads a new connection to each of these servers, and all further ones to the last."""
        self.servers, self.server = list(servers), servers[-1]

    def silence(self):
        """Loses all further bytes of the connections that there are, and keeps the connections open."""
        for connection in self.connections:
            connection.is_silent = True

    def break_off(self):
        """Closes the connections that there are."""
        for connection in self.connections:
            end(connection)
        self.connections = []

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = self.servers.pop(0) if self.servers else self.server
                server = socket.create_connection(("127.0.0.1", server.port))
            except OSError:
                client.close()
                continue
            for stream in client, server:
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = SimpleNamespace(client=client, server=server, fate=None, is_silent=False)
            self.connections.append(connection)
            for to_the_server in True, False:
                threading.Thread(target=self.pass_on, args=(connection, to_the_server), daemon=True).start()

    def pass_on(self, connection, to_the_server):
        streams = connection.client, connection.server
        source, target = streams if to_the_server else reversed(streams)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                for piece in [] if connection.is_silent else self.filter(connection, to_the_server, data):
                    target.sendall(piece)
        end(connection)


def end(connection):
    for stream in connection.client, connection.server:
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def unanswered():
    """The port of a server whose system answers no further connection: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        with contextlib.suppress(TimeoutError):
            while True:
                stack.enter_context(socket.create_connection(listener.getsockname(), timeout=0.5))
        yield listener.getsockname()[1]
