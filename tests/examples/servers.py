"""A real server with the module, and an address that leads to one, over a network that can fail."""

import contextlib
import functools
import itertools
import os
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis

from packages import ROOT, TARGET

# A process ends with the test that has started it, also if that is killed.
WITH_THE_TEST = "setpriv", "--pdeathsig"


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
def library():
    """Returns the module in MODULE, or else makes it."""
    if "MODULE" not in os.environ:
        subprocess.run("cargo build --locked --quiet --release".split(), cwd=ROOT, check=True)
    return Path(os.environ.get("MODULE", TARGET.parent / "release/libredis_cell.so")).resolve()


class Server:
    """A server with the module and further settings. It has a free port and a folder of its own, and is killed after the
    test. `SERVER` names another executable."""

    def __init__(self, request, *settings, environment={}):
        self.folder = tempfile.TemporaryDirectory(f".{os.getpid()}", "server-", TARGET)
        self.port = free_port()
        words = [*WITH_THE_TEST, "KILL", os.environ.get("SERVER", "redis-server"), "--port", self.port, "--save", ""]
        words += ["--bind", "127.0.0.1", "--dir", self.folder.name, "--loadmodule", library(), *settings]
        if "--cluster-enabled" in settings:
            # Its own choice, 10,000 ports further, may be a port that the system has given to a client.
            words += ["--cluster-port", free_port()]
        # A server refuses to start in a locale that the machine lacks.
        self.words, self.environment = [*map(str, words)], {**os.environ, "LC_ALL": "C", **environment}
        self.client = redis.Redis(port=self.port, decode_responses=True)
        request.addfinalizer(self.kill)
        self.restart()

    def restart(self):
        """Starts the process, again on its port."""
        self.process = subprocess.Popen(self.words, env=self.environment)
        wait_for("a server is ready", self.is_ready)

    def is_ready(self):
        assert self.process.poll() is None, "a server has ended, see its output"
        with contextlib.suppress(redis.ConnectionError):
            return self.client.ping()

    def __call__(self, line, *words):
        """Runs a command that is written as a user types it; further words are taken as they are."""
        return self.client.execute_command(*line.split(), *words)

    def kill(self):
        """Ends the process at once, as a crash does."""
        self.process.kill()
        self.process.wait()


class Clock:
    """The wall clock of a server with this `environment`: it stands where the test puts it, in ns since 1970."""

    def __init__(self, folder):
        library, self.file = folder / "clock.so", open(folder / "clock", "wb", buffering=0)
        source = ROOT / "tests/support/clock.c"
        # Without a C library: the server has one, which may be another than that of the shell that starts it.
        compiler = os.environ.get("MODULE_CC", "cc")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-nostdlib", "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": library, "CLOCK": folder / "clock"}
        self.set(1_790_000_000_123_456_000)

    def set(self, now):
        self.now = now
        # The second number shifts the clock by seconds.
        os.pwrite(self.file.fileno(), struct.pack("qq", now, 0), 0)


class Address:
    """An address whose new connections lead to `server`, like a Service of Kubernetes, over a network that can fail."""

    def __init__(self, server):
        self.server, self.accepted, self.listener = server, 0, listening(0)
        self.port = self.listener.getsockname()[1]
        self.fates("CL.")
        threading.Thread(target=self.accept, daemon=True).start()

    def fates(self, command, *fates):
        """Sets the fates of the next calls of this command, in their order; others pass.

        "broken off": the connection is closed instead of the answer; bytes: they are the answer, in the server's place.
        "lost" and "late" are said of the answer and all after it on the connection, whose further calls take no fate.
        """
        self.command, self.coming = command.encode(), iter(fates)

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            self.accepted += 1
            threading.Thread(target=self.carry, args=(client, self.server.port), daemon=True).start()

    def carry(self, client, port):
        """Carries what the two ends of a connection send, in one thread, until an end or a fate closes it."""
        fate, poll = None, select.poll()
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server:
            for end in client, server:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                poll.register(end, select.POLLIN)
            while True:
                for ready, _ in poll.poll():
                    is_call = ready == client.fileno()
                    data = (client if is_call else server).recv(65536)
                    if is_call and self.command in data:
                        fate = fate or next(self.coming, None)
                    if not data or (fate == "broken off" and not is_call):
                        return
                    if isinstance(fate, bytes):
                        client.sendall(fate)
                        fate = None
                    elif is_call:
                        server.sendall(data)
                    elif fate != "lost":
                        time.sleep(1.5 if fate == "late" else 0)
                        client.sendall(data)
