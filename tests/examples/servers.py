"""A real server with the module, its fixtures, and an address that leads to it over a network that can fail."""

import contextlib
import functools
import os
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

import pytest
import redis

from packages import ROOT, TARGET

# Goes before a signal and a command. The command gets the signal when the test that started it exits or is killed.
WITH_THE_TEST = "setpriv", "--pdeathsig"


def wait_for(what, ask):
    """Returns the first true result of `ask`. Fails after 2,400 attempts, which take at least two minutes."""
    for number in range(2_400):
        if answer := ask():
            return answer
        time.sleep(min(2 + number, 50) / 1000)
    raise AssertionError(f"never happened: {what}")


# The sockets that reserve the last fifty ports. They do not listen.
RESERVED = deque(maxlen=50)


def free_port():
    """Returns a port that the system gives to no other process. Servers that set SO_REUSEADDR can still listen on it,
    because the socket that reserves the port has set it, too."""
    RESERVED.append(socket.socket())
    RESERVED[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    RESERVED[-1].bind(("127.0.0.1", 0))
    return RESERVED[-1].getsockname()[1]


@functools.cache
def library():
    """Returns the path of the module: MODULE, or else a new build."""
    if "MODULE" not in os.environ:
        subprocess.run("cargo build --locked --quiet --release".split(), cwd=ROOT, check=True)
    return Path(os.environ.get("MODULE", TARGET.parent / "release/libredis_cell.so")).resolve()


class Server:
    """A server with the module and further settings, on a free port and in a new folder. It is killed after the test.
    `SERVER` names another executable."""

    def __init__(self, request, *settings, environment={}):
        self.folder = tempfile.TemporaryDirectory(f".{os.getpid()}", "server-", TARGET)
        self.port = free_port()
        words = [*WITH_THE_TEST, "KILL", os.environ.get("SERVER", "redis-server"), "--port", self.port, "--save", ""]
        words += ["--bind", "127.0.0.1", "--dir", self.folder.name, "--loadmodule", library(), *settings]
        if "--cluster-enabled" in settings:
            # The default, 10,000 above the server's port, may be in use as a client's port.
            words += ["--cluster-port", free_port()]
        # Use the C locale: a server refuses to start with a locale that the machine lacks.
        self.words, self.environment = [*map(str, words)], {**os.environ, "LC_ALL": "C", **environment}
        self.client = redis.Redis(port=self.port, decode_responses=True)
        self.process = None
        request.addfinalizer(self.kill)
        self.restart()

    def restart(self):
        """Starts the process on its port. If it is running, kills it first."""
        if self.process:
            self.kill()
        self.process = subprocess.Popen(self.words, env=self.environment)
        wait_for("a server is ready", self.is_ready)

    def is_ready(self):
        assert self.process.poll() is None, "a server has exited, see its output"
        with contextlib.suppress(redis.ConnectionError):
            return self.client.ping()

    def __call__(self, line, *words):
        """Runs a command as a user types it. Further words may contain spaces."""
        return self.client.execute_command(*line.split(), *words)

    def kill(self):
        """Kills the process, as a crash would."""
        self.process.kill()
        self.process.wait()


class Clock:
    """The wall clock of a server with this `environment`, in ns since 1970. Only the test moves it."""

    def __init__(self, folder):
        library, self.file = folder / "clock.so", open(folder / "clock", "wb", buffering=0)
        source = ROOT / "tests/support/clock.c"
        # Link no C library: this is loaded by the server and by the shell that starts it, whose C libraries may differ.
        compiler = os.environ.get("MODULE_CC", "cc")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-nostdlib", "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": library, "CLOCK": folder / "clock"}
        self.set(1_790_000_000_123_456_000)

    def set(self, now):
        self.now = now
        # The second number, in seconds, is added to the first.
        os.pwrite(self.file.fileno(), struct.pack("qq", now, 0), 0)


@pytest.fixture
def new_server(request):
    """Starts another server: new_server("--cluster-enabled", "yes")."""
    return functools.partial(Server, request)


@pytest.fixture
def clock(tmp_path):
    """A wall clock that only the test moves. For a second server: new_server(environment=clock.environment)."""
    return Clock(tmp_path)


@pytest.fixture
def server(request, new_server):
    """A server. If the test has a `clock`, it is the server's."""
    clock = "clock" in request.fixturenames and request.getfixturevalue("clock")
    return new_server(environment=clock.environment if clock else {})


class Address:
    """An address whose new connections lead to `server`, like a Kubernetes Service, over a network that can fail."""

    def __init__(self, server):
        self.server, self.accepted = server, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        self.fates("CL.")
        threading.Thread(target=self.accept, daemon=True).start()

    def fates(self, command, *fates):
        """Sets what happens to the next calls of this command, one after another. All other calls pass.

        None lets a call pass, too. "broken off" closes the connection instead of replying. Bytes replace the reply, and
        the call never reaches the server. "lost" and "late" affect this reply and all later ones on the connection. A
        function is called first, and returns one of these.
        """
        self.command, self.coming = command.encode(), iter(fates)

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            self.accepted += 1
            threading.Thread(target=self.carry, args=(client, self.server.port), daemon=True).start()

    def carry(self, client, port):
        """Copies data between the two ends of a connection until one end or a fate closes it."""
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
                        fate = fate() if callable(fate) else fate
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
