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
# A process ends with the test that has started it, also if that is killed.
WITH_THE_TEST = "setpriv", "--pdeathsig"


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
def built(variable, file, *words):
    """Returns the path in this variable of the environment, or else makes the file in target/."""
    if variable not in os.environ:
        subprocess.run(["cargo", "build", "--locked", "--quiet", *words], cwd=ROOT, check=True)
    return Path(os.environ.get(variable, TARGET.parent / file)).resolve()


class Server:
    """A server with the module, if `module` is not False, and further settings, as on its command line.

    It has a free port and a folder of its own. `SERVER` names another executable than redis-server.
    """

    def __init__(self, *settings, module=True, environment={}):
        self.folder = tempfile.TemporaryDirectory(prefix="server-", dir=TARGET)
        self.port, executable = free_port(), os.environ.get("SERVER", "redis-server")
        words = [*WITH_THE_TEST, "KILL", need(executable, shutil.which(executable)), "--port", self.port, "--save", ""]
        # A primary makes the first replica's snapshot at once; it does not wait for a second replica.
        words += ["--bind", "127.0.0.1", "--dir", self.folder.name, "--repl-diskless-sync-delay", 0, *settings]
        if "--cluster-enabled" in settings:
            # Its own choice, 10,000 ports further, may be a port that the system has given to a client.
            words += ["--cluster-port", free_port()]
        if module:
            words += ["--loadmodule", built("MODULE", "release/libredis_cell.so", "--release")]
        # A server refuses to start in a locale that the machine lacks.
        self.words, self.environment = [*map(str, words)], {**os.environ, "LC_ALL": "C", **environment}
        self.client = redis.Redis(port=self.port, decode_responses=True)
        self.restart()

    def restart(self):
        """Starts the process, again on its port."""
        self.process = subprocess.Popen(self.words, env=self.environment)
        wait_for("a server is ready", self.is_ready)
        # A test may count the connections.
        self.client.connection_pool.disconnect()

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

    def signal(self, name):
        self.process.send_signal(getattr(signal, f"SIG{name}"))


class Clock:
    """The wall clock of a server with this `environment`: it stands where the test puts it, in ns since 1970."""

    def __init__(self, folder):
        library, self.file = folder / "clock.so", open(folder / "clock", "wb", buffering=0)
        source = ROOT / "tests/support/clock.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": library, "CLOCK": folder / "clock"}
        self.set(1_790_000_000_123_456_000)

    def set(self, now):
        self.now = now
        # The second number shifts the clock by seconds.
        os.pwrite(self.file.fileno(), struct.pack("qq", now, 0), 0)


def passed_on(connection, to_the_server, data):
    return [data]


def late(seconds, size=65536):
    """Returns a filter that lets a reply wait, or drip: it waits before each piece of that many bytes."""

    def filter(connection, to_the_server, data):
        for start in range(0, len(data), size):
            time.sleep(0 if to_the_server else seconds)
            yield data[start : start + size]

    return filter


def saying(*replies):
    """Returns a filter that answers the calls of the module with these bytes, in the server's place."""
    coming = itertools.cycle(replies)

    def filter(connection, to_the_server, data):
        calls = data.count(b"CL.") if to_the_server else 0
        connection.client.sendall(b"".join(itertools.islice(coming, calls)))
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
    may write to `connection.client`, may sleep, and raises an OSError to break off.
    """

    def __init__(self, *servers):
        self.filter, self.connections, self.accepted, self.port = passed_on, [], 0, free_port()
        self.lead_to(*servers)
        self.listener = listening(self.port)
        threading.Thread(target=self.accept, daemon=True).start()

    def lead_to(self, *servers):
        """Leads a new connection to each of these servers, and all further ones to the last."""
        self.servers = itertools.chain(servers, itertools.repeat(servers[-1]))

    def silence(self):
        """Loses all further bytes of the connections that there are, and keeps the connections open."""
        for connection in self.connections:
            connection.fate = "silent"

    def break_off(self):
        """Closes the connections that there are."""
        for connection in [*self.connections]:
            end(connection)

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            self.accepted += 1
            try:
                server = socket.create_connection(("127.0.0.1", next(self.servers).port))
            except OSError:
                client.close()
                continue
            connection = SimpleNamespace(client=client, server=server, fate=None)
            self.connections.append(connection)
            for streams in (client, server), (server, client):
                streams[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.pass_on, args=(connection, *streams), daemon=True).start()

    def pass_on(self, connection, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if connection.fate != "silent":
                    for piece in self.filter(connection, target is connection.server, data):
                        target.sendall(piece)
        end(connection)
        # The last of its two threads closes it. A client may connect a thousand times.
        with contextlib.suppress(ValueError):
            self.connections.remove(connection)


def end(connection):
    for stream in connection.client, connection.server:
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
