"""The applications: each example of docs/clients as a program, and its callers.

A new application, or program, is a line of `APPLICATIONS`, or `PROGRAMS`.
"""

import contextlib
import functools
import http.client
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import pytest

from packages import HERE, NODE, PYTHON, ROOT, TARGET
from servers import REQUIRE_ALL, WITH_THE_TEST, free_port, need, wait_for

# The tokens of a caller's limit in each example: three at once and one a day, so that none comes back meanwhile.
LIMIT = 3
FORM = "application/x-www-form-urlencoded"
ENVIRONMENT = {
    **os.environ, "PYTHON": sys.executable, "PYTHONPATH": f"{PYTHON}:.", "PYTHONUNBUFFERED": "yes", "NODE_PATH": NODE,
    "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": f"{TARGET}/go", "TESTS": str(HERE),
}


@functools.cache
def is_found(check):
    return not subprocess.run(["sh", "-c", check], env=ENVIRONMENT, capture_output=True).returncode


@dataclass(frozen=True)
class Row:
    """An application or a program: its name, a command that fails where something is missing, and the words that start
    it in docs/clients."""

    name: str
    check: str = field(repr=False)
    words: str = field(repr=False)
    # The processes that it has by itself, each with its part of a share.
    processes: int = 1
    is_required: bool = REQUIRE_ALL


def python(module):
    return f"$PYTHON -c 'import {module}'"


FASTAPI = "$PYTHON -m uvicorn --no-proxy-headers --app-dir $TESTS --port $HTTP_PORT fastapi_site:app"
EXPRESS = 'node -e "$(sed "/const hello = /r $TESTS/express_routes.js" express_app.js)"'
NODE_REDIS, IOREDIS = ("node -e 'require(\"%s\")'" % library for library in ("redis", "ioredis"))
NGINX = "ls /usr/lib/nginx/modules/ngx_http_lua_module.so /usr/share/lua/5.1/nginx/redis.lua"
# Each example, and paths that answer in further ways. In each, `GET /` has a share, and `POST /login` is closed.
APPLICATIONS = [
    Row("flask", python("flask"), "$PYTHON -m flask --app $TESTS/flask_site run --port $HTTP_PORT"),
    Row("fastapi", python("fastapi, uvicorn"), FASTAPI),
    Row("django", python("rest_framework, werkzeug"), "$PYTHON $TESTS/django_site.py"),
    Row("express", NODE_REDIS, EXPRESS),
    Row("express_ioredis", IOREDIS, "CLIENT=./ioredis.js " + EXPRESS),
    Row("nginx", NGINX, "sh $TESTS/nginx.sh $OWN/nginx", processes=2),
]
# Programs that make five calls, print the answers and end.
PROGRAMS = [
    Row("redis_py.py", python("redis"), "$PYTHON redis_py.py"),
    Row("redis_asyncio.py", python("redis"), "$PYTHON redis_asyncio.py"),
    Row("node_redis.js", NODE_REDIS, "node node_redis.js"),
    Row("ioredis.js", IOREDIS, "node ioredis.js"),
    Row("phpredis", "php -r 'new Redis();'", "php -d display_errors=stderr php_redis.php"),
    Row("predis", "ls /usr/share/php/Predis", "php -n -d display_errors=stderr php_redis.php"),
    Row("redis_rb", "ruby -e 'require \"redis\"'", "ruby redis_rb.rb"),
    # scripts/test does not install Go, which is large.
    Row("redigo", "go list github.com/gomodule/redigo/redis", "go run redigo.go", is_required=False),
    Row("redis_rs", "cargo --version", "${REDIS_RS:-cargo run --quiet --profile test --example redis_rs}"),
]


def named(*names):
    return [row for row in APPLICATIONS + PROGRAMS if row.name in names]


@functools.cache
def case(row, **environment):
    return pytest.param((row, environment), id=row.name, marks=pytest.mark.xdist_group(row.name))


def on(rows, fixture="running", **environment):
    """Returns the mark of a situation that runs on these applications, each with further words of `environment`."""
    return pytest.mark.parametrize(fixture, [case(row, **environment) for row in rows], indirect=True)


class Answer(http.client.HTTPResponse):
    """An answer: its status, its headers, whose names may be in any case, and its body."""

    def begin(self):
        super().begin()
        self.body = self.read().decode()

    def number(self, name):
        """Returns the number in a header such as Retry-After, "Limit" for X-RateLimit-Limit, or None."""
        values = self.headers.get_all(name, []) + self.headers.get_all(f"X-RateLimit-{name}", [])
        assert len(values) < 2, f"{name}: {values}"
        return int(values[0]) if values else None

    def numbers(self, *names):
        return self.status, *map(self.number, names)


class Application:
    """An application, and its callers, who are addresses. PROXY believes the tests' own X-Forwarded-For."""

    def __init__(self, row, environment):
        self.row, self.callers, self.http_port = row, itertools.count(256), free_port()
        # A folder for what it writes. It runs in that of the examples.
        self.own = tempfile.TemporaryDirectory(prefix="app-", dir=TARGET)
        self.environment = {
            "OWN": self.own.name, "PROXY": "127.0.0.1", "HTTP_PORT": self.http_port,
            # On a busy machine, a server may take longer than the examples' own tenth of a second.
            "TIMEOUT": 2, **environment,
        }
        need(f"what `{row.check}` asks for", is_found(row.check), row.is_required)

    def popen(self, words, port, **streams):
        variables = {name: str(value) for name, value in self.environment.items()}
        variables = {**ENVIRONMENT, **variables, "REDIS_PORT": str(port)}
        # The end by TERM is also that of nginx's workers.
        command = [*WITH_THE_TEST, "TERM", "sh", "-c", f"exec env {words}"]
        settings = {"cwd": ROOT / "docs/clients", "env": variables, "process_group": 0, "text": True}
        return subprocess.Popen(command, **streams, **settings)

    def output(self, port, words=None, **environment):
        """Runs the program to its end, and returns what it prints and its errors."""
        self.environment.update(environment)
        self.process = self.popen(words or self.row.words, port, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            said = self.process.communicate()[0]
        finally:
            self.stop()
        assert self.process.returncode == 0, said
        return said

    def start(self, port):
        self.process = self.popen(self.row.words, port)
        wait_for(f"{self.row.name} serves HTTP", self.serves)
        return self

    def serves(self):
        assert self.process.poll() is None, "it has ended, see its output"
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", self.http_port))

    def stop(self):
        # The workers of nginx survive the process that started them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.own.cleanup()

    def request(self, method, path, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=120)
        connection.response_class = Answer
        connection.request(method, path, body, headers)
        return connection

    def get(self, path="/", caller=None, method="GET", body=None, times=None, **headers):
        """Requests a path, and returns the answer; with `times` that many at once, and a list.

        The caller is an address. Headers are as in `X_Api_Key="secret"`.
        """
        headers = {"Connection": "close", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if caller:
            headers["X-Forwarded-For"] = caller
        connections = [self.request(method, path, body, headers) for _ in range(times or 1)]
        answers = [connection.getresponse() for connection in connections]
        return answers if times else answers[0]

    def caller(self):
        """Returns the address of a caller that has made no call yet."""
        number = next(self.callers)
        return f"192.168.{number // 256}.{number % 256}"

    def passed(self, times, caller, closed=False):
        """Makes calls of a limit at once, one that is closed or not, and returns how many passed."""
        form = f"username={caller}&password=guess", times
        login = functools.partial(self.get, "/login", caller, "POST", *form, Content_Type=FORM)
        statuses = [answer.status for answer in (login() if closed else self.get("/", caller, times=times))]
        assert {*statuses} <= {200, 429, 503 if closed else 200}, statuses
        return statuses.count(200)

    def finds(self, server):
        """Waits until the server decides."""

        def decides():
            caller = self.caller()
            self.passed(1, caller)
            return server(f"KEYS *{caller}")

        wait_for(f"{self.row.name} finds its server", decides)
