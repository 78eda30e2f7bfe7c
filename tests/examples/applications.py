"""The applications: each example of docs/clients as a program, and a caller.

A new application, or program, is a line of `APPLICATIONS`, or `PROGRAMS`.
"""

import contextlib
import functools
import http.client
import io
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from packages import HERE, NPM, PIP, ROOT, TARGET, fetched
from servers import REQUIRE_ALL, free_port, need, redis_rs, wait_for

EVERYWHERE = "EVERYWHERE" in os.environ
# The tokens of a caller's limit in each example: three at once and one a day, so that none comes back meanwhile.
LIMIT = 3


@functools.cache
def is_found(check):
    return not subprocess.run(["sh", "-c", check], capture_output=True).returncode


def debian(packages, check, is_required=REQUIRE_ALL, **environment):
    """The libraries of these packages, which are there if the command succeeds."""
    return {"": lambda: need(packages, is_found(check), is_required) and environment}


def newest(files, name, path):
    """The newest libraries, which the tests fetch."""
    return {"": lambda: {name: path.format(need(f"the packages of tests/examples/{files[0]}", fetched(*files)))}}


def python(module):
    """The newest libraries for Python and, `--everywhere`, Debian's, which Debian's own Python alone can see."""
    check = f"/usr/bin/python3 -c 'import {module}'"
    old = debian(f"Debian's {module}", check, PYTHONPATH=".", PYTHON="/usr/bin/python3")
    return {**newest(PIP, "PYTHONPATH", "{}:."), **({"-debian": old[""]} if EVERYWHERE else {})}


MODULES = "/usr/share/nodejs"
DEBIAN_NODE = debian("node-redis", f"NODE_PATH={MODULES} node -e 'require(\"redis\")'", NODE_PATH=MODULES)
NPM_LIBRARIES = newest(NPM, "NODE_PATH", "{}/node_modules")
NGINX = debian(
    "nginx-light, libnginx-mod-http-lua or lua-nginx-redis",
    "ls /usr/lib/nginx/modules/ngx_http_lua_module.so /usr/share/lua/5.1/nginx/redis.lua",
)
# scripts/test does not install Go, which is large.
GO = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": TARGET / "go", "is_required": False}
REDIGO = "golang-go and golang-github-gomodule-redigo-dev", "ls /usr/share/gocode/src/github.com/gomodule/redigo"
# Flask's own server, whose queue has 128 places: a connection that waits for one for a minute is reset.
FLASK = """$PYTHON -c "import flask.cli, sys, werkzeug.serving as serving
serving.LISTEN_QUEUE = serving.BaseWSGIServer.request_queue_size = 1024
sys.argv = 'flask --app flask_app run --port $HTTP_PORT'.split()
flask.cli.main()"
"""
UVICORN = "$PYTHON -m uvicorn --no-proxy-headers --port $HTTP_PORT"


@dataclass(frozen=True)
class Row:
    """An application or a program: its name, its libraries by version, and the words that start it in docs/clients."""

    name: str
    libraries: dict = field(repr=False)
    words: str = field(repr=False)
    # Whether it serves HTTP: `GET /` has a share, `POST /login` is closed. Others read lines, as calls.py does.
    http: bool = True
    # The processes that it has by itself, each with its part of a share.
    processes: int = 1


APPLICATIONS = [
    Row("redis_py", python("redis"), "$PYTHON $TESTS/calls.py redis_py", http=False),
    Row("redis_asyncio", python("redis"), "$PYTHON $TESTS/calls.py redis_asyncio", http=False),
    Row("node_redis", DEBIAN_NODE, "node $TESTS/calls.js ./node_redis.js", http=False),
    Row("ioredis", NPM_LIBRARIES, "node $TESTS/calls.js ./ioredis.js", http=False),
    Row("flask", python("flask"), FLASK),
    Row("fastapi", python("fastapi, uvicorn"), f"{UVICORN} fastapi_app:app"),
    Row("django", python("rest_framework"), "$PYTHON $TESTS/django_site.py"),
    Row("express", NPM_LIBRARIES, "node express_app.js"),
    Row("express_ioredis", NPM_LIBRARIES, "CLIENT=./ioredis.js node express_app.js"),
    Row("nginx", NGINX, "sh $TESTS/nginx.sh $OWN/nginx", processes=2),
]
HTTP = [row for row in APPLICATIONS if row.http]
# Programs that make five calls, print the answers and end.
PROGRAMS = [
    Row("redis_py.py", python("redis"), "$PYTHON redis_py.py"),
    Row("redis_asyncio.py", python("redis"), "$PYTHON redis_asyncio.py"),
    Row("node_redis.js", DEBIAN_NODE, "node node_redis.js"),
    Row("ioredis.js", NPM_LIBRARIES, "node ioredis.js"),
    Row("phpredis", debian("php-redis", "php -r 'new Redis();'"), "php -d display_errors=stderr php_redis.php"),
    Row("predis", debian("php-predis", "ls /usr/share/php/Predis"), "php -n -d display_errors=stderr php_redis.php"),
    Row("redis_rb", debian("ruby-redis", "ruby -e 'require \"redis\"'"), "ruby redis_rb.rb"),
    Row("hiredis", debian("libhiredis-dev", "ls /usr/include/hiredis"), """sh -ec 'program=$(mktemp)
        trap "rm $program" EXIT
        cc -O1 -Wall -Wextra -Werror -o $program hiredis.c -lhiredis
        $program'"""),
    Row("redigo", debian(*REDIGO, **GO), "go run redigo.go"),
    Row("redis_rs", {"": lambda: {"REDIS_RS": redis_rs()}}, "$REDIS_RS"),
]


def named(*names):
    return [row for row in APPLICATIONS + PROGRAMS if row.name in names]


def on(rows, without={}, fixture="app", **environment):
    """Returns the mark of a situation that runs on these applications, in each version of their libraries.

    `without` names those to leave out, and why. The application gets further words of `environment`.
    """
    cases = []
    for row in rows:
        for version in row.libraries if row.name not in without else ():
            name = row.name + version
            cases.append(pytest.param((row, version, environment), id=name, marks=pytest.mark.xdist_group(name)))
    return pytest.mark.parametrize(fixture, cases, indirect=True)


class Answer:
    """An answer: its status, its headers, whose names may be in any case, and its body: of a program that reads lines,
    a word for how the call ended."""

    def __init__(self, data):
        status, _, self.data = data.partition(b"\r\n")
        self.status = int(status.split()[1])

    @classmethod
    def of_line(cls, status, headers, how):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return cls(f"HTTP/1.0 {status}\r\n{lines}\r\n{how}".encode())

    @functools.cached_property
    def headers(self):
        return http.client.parse_headers(io.BytesIO(self.data))

    @property
    def body(self):
        return self.data.partition(b"\r\n\r\n")[2].decode()

    def number(self, name):
        """Returns the number in a header such as Retry-After, "Limit" for X-RateLimit-Limit, or None."""
        values = self.headers.get_all(name, []) + self.headers.get_all(f"X-RateLimit-{name}", [])
        assert len(values) < 2, f"{name}: {values}"
        return int(values[0]) if values else None

    def numbers(self, *names):
        return self.status, *map(self.number, names)

    def __repr__(self):
        return f"{self.status} {self.data}"


class Application:
    """An application, and its callers, who are addresses. PROXY believes the tests' own X-Forwarded-For."""

    def __init__(self, row, version, environment, redis_port=1):
        libraries = row.libraries[version]()
        self.row, self.version, self.callers, self.http_port = row, version, itertools.count(256), free_port()
        # The folder that it runs in, and one of its own for what it writes.
        self.folder, self.own = ROOT / "docs/clients", Path(tempfile.mkdtemp(prefix="app-", dir=TARGET))
        self.environment = {
            "PYTHON": sys.executable, "TESTS": HERE, "OWN": self.own, "PYTHONUNBUFFERED": "yes",
            "PROXY": "127.0.0.1", "HTTP_PORT": self.http_port, "REDIS_PORT": redis_port,
            # On a busy machine, a server may take longer than the examples' own tenth of a second.
            "TIMEOUT": 2, **libraries, **environment,
        }

    def popen(self, words, **settings):
        variables = {**os.environ, **{name: str(value) for name, value in self.environment.items()}}
        command = ["sh", "-c", f"exec env {words}"]
        return subprocess.Popen(command, cwd=self.folder, env=variables, process_group=0, text=True, **settings)

    def output(self, port, words=None, **environment):
        """Runs the program to its end, and returns what it prints and its errors."""
        self.environment.update(REDIS_PORT=port, **environment)
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = self.popen(words or self.row.words, **streams)
        said = self.process.communicate()[0]
        assert self.process.returncode == 0, said
        return said

    def start(self):
        with open(self.own / "log", "w") as log:
            output = log if self.row.http else subprocess.PIPE
            self.process = self.popen(self.row.words, stdin=subprocess.PIPE, stdout=output, stderr=log)
        if self.row.http:
            wait_for(f"{self.row.name} serves HTTP, see {self.own}/log", self.serves)
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
        shutil.rmtree(self.own)

    def log(self):
        return (self.own / "log").read_text(errors="replace")

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
        return [Answer(answer) for answer in answers]

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
        """Makes that many calls of a caller at once, of a limit that is closed or not, and returns the answers."""
        if self.row.http and not closed:
            return self.get("/", caller, times=times)
        if self.row.http:
            form = {"Content_Type": "application/x-www-form-urlencoded"}
            return self.get("/login", caller, "POST", f"username={caller}&password=guess", times, **form)
        print(times, caller, "closed" if closed else "share", file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"{self.row.name} has ended: {self.log()}"
        return [Answer.of_line(*answer) for answer in json.loads(line)]

    def caller(self):
        """Returns the address of a caller that has made no call yet; without a proxy, all callers have one."""
        if self.row.http and self.environment["PROXY"] != "127.0.0.1":
            return "127.0.0.1"
        number = next(self.callers)
        return f"192.168.{number // 256}.{number % 256}"

    def passed(self, times, caller, closed=False):
        """Makes the calls at once, and returns how many passed."""
        statuses = [answer.status for answer in self.calls(times, caller, closed)]
        assert len(statuses) == times and {*statuses} <= {200, 429, 503 if closed else 200}, statuses
        return statuses.count(200)

    def share(self, processes=1):
        """Returns the numbers of calls that the application's share may pass, if one of its processes has all calls, or
        each some; of a limit that is divided by so many applications."""
        part = max(1, LIMIT // (processes * self.row.processes))
        return range(part, part * self.row.processes + 1)

    def is_alone(self):
        """Checks that the share alone decides, and that no closed call passes. Returns a caller with no share left."""
        caller = self.caller()
        assert self.passed(20, caller, closed=True) == 0
        assert self.passed(20, caller) in self.share()
        return caller

    def finds(self, server):
        """Waits until the server decides."""

        def decides():
            caller = self.caller()
            self.passed(1, caller)
            return server(f"KEYS *{caller}")

        wait_for(f"{self.row.name} finds its server", decides)
