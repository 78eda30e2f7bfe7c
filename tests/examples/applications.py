"""The applications: each example of docs/clients as a program, and a caller.

A new application is a line of `APPLICATIONS`.
"""

import contextlib
import functools
import http.client
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from email.message import Message

import pytest

from packages import HERE, NPM, PIP, ROOT, TARGET, fetched
from servers import free_port, listening, wait_for

EVERYWHERE = "EVERYWHERE" in os.environ
# The tokens of a caller's limit in each example: three at once and one a day, so that none comes back meanwhile.
LIMIT = 3


def lacking(what):
    """Leaves the running test out because this machine lacks something, or fails it where scripts/test has installed all."""
    (pytest.fail if "REQUIRE_ALL" in os.environ else pytest.skip)(f"{what} is not installed")


@functools.cache
def is_found(check):
    return not subprocess.run(["sh", "-c", check], capture_output=True, cwd=HERE).returncode


def debian(packages, check, **environment):
    """The libraries of these packages of Debian, which are there if the command succeeds."""

    def libraries():
        return environment if is_found(check) else lacking(packages)

    return libraries


def newest(files, name, path):
    """The newest libraries, which the tests fetch."""

    def libraries():
        folder = fetched(*files)
        return {name: path.format(folder)} if folder else lacking(f"a package of tests/examples/{files[0][0]}")

    return libraries


def python(module):
    """The newest libraries for Python and, `--everywhere`, Debian's. Debian's own Python is the only one to see those."""
    check = f"/usr/bin/python3 -c 'import {module}'"
    debians = debian(f"Debian's {module}", check, PYTHONPATH=".", PYTHON="/usr/bin/python3")
    newest_ones = newest(PIP, "PYTHONPATH", "{}:.")
    return {"": newest_ones, "-debian": debians} if EVERYWHERE else {"": newest_ones}


NPM_LIBRARIES = {"": newest(NPM, "NODE_PATH", "{}/node_modules")}
NODE_PATH = "/usr/share/nodejs"
DEBIAN_NODE = {"": debian("node-redis", f"NODE_PATH={NODE_PATH} node -e 'require(\"redis\")'", NODE_PATH=NODE_PATH)}
NGINX = {"": debian(
    "nginx-light, libnginx-mod-http-lua or lua-nginx-redis",
    "ls /usr/lib/nginx/modules/ngx_http_lua_module.so /usr/share/lua/5.1/nginx/redis.lua",
)}
# Flask's own server, whose queue has 128 places: a connection that waits for one for a minute is reset.
FLASK = """$PYTHON -c "import flask.cli, sys, werkzeug.serving as serving
serving.LISTEN_QUEUE = serving.BaseWSGIServer.request_queue_size = 1024
sys.argv = 'flask --app flask_app run --port $HTTP_PORT'.split()
flask.cli.main()"
"""
UVICORN = "$PYTHON -m uvicorn --no-proxy-headers --port $HTTP_PORT"


@dataclass(frozen=True)
class Row:
    """An application: its name, the libraries of each version, and the words that start it in docs/clients."""

    name: str
    libraries: dict = field(repr=False)
    words: str = field(repr=False)
    # Whether it serves HTTP: `GET /` has a share, `POST /login` is closed. Others read lines, as calls.py does.
    http: bool = True
    # The processes that it has by itself, each with its part of a share.
    processes: int = 1

    def __str__(self):
        return self.name


APPLICATIONS = [
    Row("redis_py", python("redis"), "$PYTHON $TESTS/calls.py redis_py", http=False),
    Row("redis_asyncio", python("redis"), "$PYTHON $TESTS/calls.py redis_asyncio", http=False),
    Row("node_redis", DEBIAN_NODE, "node $TESTS/calls.js", http=False),
    Row("ioredis", NPM_LIBRARIES, "env CLIENT=ioredis.js node $TESTS/calls.js", http=False),
    Row("flask", python("flask"), FLASK),
    Row("fastapi", python("fastapi, uvicorn"), f"{UVICORN} fastapi_app:app"),
    Row("django", python("rest_framework"), "$PYTHON $TESTS/django_site.py"),
    Row("express", NPM_LIBRARIES, "node express_app.js"),
    Row("express_ioredis", NPM_LIBRARIES, "env CLIENT=./ioredis.js node express_app.js"),
    Row("nginx", NGINX, "sh $TESTS/nginx.sh $TARGET/nginx-$HTTP_PORT", processes=2),
]
HTTP = [row for row in APPLICATIONS if row.http]


def named(*names):
    return [row for row in APPLICATIONS if row.name in names]


def on(rows, without={}, **environment):
    """Returns the mark of a situation that runs on these applications, in each version of their libraries.

    `without` names those to leave out, and why. The application gets further words of `environment`.
    """
    cases = []
    for row in rows:
        for version in row.libraries if row.name not in without else ():
            name = row.name + version
            cases.append(pytest.param((row, version, environment), id=name, marks=pytest.mark.xdist_group(name)))
    return pytest.mark.parametrize("app", cases, indirect=True)


class Answer:
    """An answer: its status, its headers, whose names may be in any case, and its body; of a program that reads lines, a
    word for how the call ended."""

    def __init__(self, status, headers, body=""):
        self.status, self.headers, self.body = status, headers, body

    @classmethod
    def parse(cls, data):
        file = io.BytesIO(data)
        status = int(file.readline().split()[1])
        return cls(status, http.client.parse_headers(file), file.read().decode())

    def number(self, name):
        """Returns the number in a header such as Retry-After, "Limit" for X-RateLimit-Limit, or None."""
        values = self.headers.get_all(name, []) + self.headers.get_all(f"X-RateLimit-{name}", [])
        assert len(values) < 2, f"{name}: {values}"
        return int(values[0]) if values else None

    def __repr__(self):
        return f"{self.status} {dict(self.headers.items())} {self.body!r}"


class Application:
    """A running application, and its callers, who are addresses. PROXY believes the tests' own X-Forwarded-For."""

    def __init__(self, row, version, environment, redis_port):
        self.row, self.callers, self.http_port = row, itertools.count(256), free_port()
        self.environment = {
            "PYTHON": f"{sys.executable} -B", "TESTS": HERE, "TARGET": TARGET, "PYTHONUNBUFFERED": "yes",
            "PROXY": "127.0.0.1", "HTTP_PORT": self.http_port, "REDIS_PORT": redis_port,
            # On a busy machine, a server may take longer than the examples' own tenth of a second.
            "TIMEOUT": 2, **row.libraries[version](), **environment,
        }
        self.folder = ROOT / "docs/clients"
        self.log_file = TARGET / f"log-{self.http_port}"

    def variables(self):
        return {**os.environ, **{name: str(value) for name, value in self.environment.items()}}

    def start(self):
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", f"exec {self.row.words}"], cwd=self.folder, env=self.variables(), process_group=0, text=True,
                stdin=subprocess.PIPE, stdout=log if self.row.http else subprocess.PIPE, stderr=log,
            )
        if self.row.http:
            wait_for(f"{self.row} serves HTTP, see {self.log_file}", self.serves)
        return self

    def serves(self):
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError):
            return self.connect()

    def stop(self):
        # The workers of nginx survive the process that started them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log_file.unlink()

    def log(self):
        return self.log_file.read_text(errors="replace")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.http_port), timeout=120)

    def send(self, request, times=1):
        """Sends a whole request, on many connections at once, and returns the answers."""
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(self.connect()) for _ in range(times)]
            for connection in connections:
                connection.sendall(request)
            answers = [connection.makefile("rb").read() for connection in connections]
        assert all(answers), self.log()
        return [Answer.parse(answer) for answer in answers]

    def get(self, path="/", caller=None, method="GET", body="", times=None, **headers):
        """Requests a path, and returns the answer; with `times` that many at once, and a list.

        The caller is an address. Headers are as in `X_Api_Key="secret"`.
        """
        if caller:
            headers.setdefault("X_Forwarded_For", caller)
        if body or method != "GET":
            headers.setdefault("Content_Length", len(body.encode()))
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        answers = self.send(f"{method} {path} HTTP/1.0\r\n{''.join(lines)}\r\n{body}".encode(), times or 1)
        return answers if times else answers[0]

    def calls(self, times, caller, closed=False):
        """Makes that many calls of a caller at once, of its share or of a limit that is closed, and returns the answers."""
        if not self.row.http:
            print(times, caller, "closed" if closed else "share", file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            assert line, f"{self.row} has ended: {self.log()}"
            return [Answer(status, message(headers), how) for status, headers, how in json.loads(line)]
        if closed:
            form = {"Content_Type": "application/x-www-form-urlencoded"}
            return self.get("/login", caller, "POST", f"username={caller}&password=guess", times, **form)
        return self.get("/", caller, times=times)

    def caller(self):
        """Returns the address of a caller that has made no call yet; without a proxy, all callers have one."""
        if self.row.http and self.environment["PROXY"] != "127.0.0.1":
            return "127.0.0.1"
        number = next(self.callers)
        return f"192.168.{number // 256}.{number % 256}"

    def passed(self, times, caller, closed=False):
        """Makes the calls at once, and returns how many passed."""
        statuses = [answer.status for answer in self.calls(times, caller, closed)]
        assert len(statuses) == times
        assert {*statuses} <= {200, 429, *([503] if closed else [])}, statuses
        return statuses.count(200)

    def is_alone(self):
        """Checks that the share alone decides, and that no call passes that is closed. Returns a caller whose share is used up."""
        caller = self.caller()
        assert self.passed(20, caller, closed=True) == 0
        assert self.passed(20, caller) in self.share()
        return caller

    def share(self):
        """Returns the numbers of calls that the shares of all processes may pass, if one or all have the calls."""
        processes = self.row.processes * int(self.environment.get("PROCESSES", 1))
        part = max(1, LIMIT // processes)
        return range(part, part * self.row.processes + 1)

    def finds(self, server):
        """Waits until the server decides."""

        def decides():
            caller = self.caller()
            self.passed(1, caller)
            return server(f"KEYS *{caller}")

        wait_for(f"{self.row} finds its server", decides)


def message(headers):
    answer = Message()
    for name, value in headers.items():
        answer[name] = str(value)
    return answer
