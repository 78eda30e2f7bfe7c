"""The examples as applications and programs, each a line of a table, and the callers of the applications."""

import contextlib
import functools
import http.client
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from packages import HERE, IS_DEBIAN, NODE, PYTHON, ROOT, TARGET
from servers import WITH_THE_TEST, Address, free_port, wait_for

# The limit of a caller: a burst of three, and then one every eight hours.
LIMIT = 3
# Whether scripts/test has installed all that Debian has, and fetched what Debian lacks.
REQUIRE_ALL = "REQUIRE_ALL" in os.environ
PYPI_IS_REQUIRED = REQUIRE_ALL and not IS_DEBIAN
FORM = "application/x-www-form-urlencoded"
ENVIRONMENT = {
    **os.environ, "PYTHON": sys.executable, "PYTHONPATH": f"{PYTHON}:.:{HERE}", "PYTHONUNBUFFERED": "yes",
    "NODE_PATH": NODE, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": f"{TARGET}/go",
    "TESTS": str(HERE),
    # Kubernetes sets the first for a Service named redis, images of gunicorn the second: no example reads them.
    "REDIS_PORT": "tcp://10.0.0.5:6379", "TIMEOUT": "soon",
}


@functools.cache
def is_found(check):
    return not subprocess.run(["sh", "-c", check], env=ENVIRONMENT, capture_output=True).returncode


class Row(NamedTuple):
    """An application or a program: its name, a command that fails if something is missing, and the words that start it in
    a folder of its own. The folder has copies of files of docs/clients, with those that their heads name, and of sites in
    this folder, after edits as a user makes them: a file, a text in it, and another text."""

    name: str
    check: str
    words: str
    files: str = ""
    edits: tuple = ()
    is_required: bool = REQUIRE_ALL

    def copy(self, folder, environment):
        names = self.files.split()
        for name in names:
            (file,) = filter(Path.exists, (ROOT / "docs/clients" / name, HERE / name))
            text = file.read_text()
            # A head says "Beside redis_py.py", or "beside limits_storage.py and redis_py.py".
            beside = re.findall(r"eside (\w+\.\w+)(?: and (\w+\.\w+))?", text)
            names += {*sum(beside, ())} - {*names, ""}
            for _, old, new in (edit for edit in self.edits if edit[0] == name):
                assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
                text = text.replace(old, re.sub(r"\$([A-Z_]+)", lambda match: environment[match[1]], new))
            Path(folder, name).write_text(text)


def python(module):
    return f"$PYTHON -c 'import {module}'"


def node(*modules):
    return "node -e '%s'" % ";".join(f'require("{module}")' for module in modules)


NODE_REDIS = node("redis")
IOREDIS = tuple(
    (file, "require('./node_redis.js'); // or './ioredis.js'", "require('./ioredis.js');")
    for file in ("rate_limit_store.js", "fastify_store.js", "nest_store.js")
)
# FastAPI since 0.93.
LIFESPAN = python("uvicorn, inspect, fastapi; inspect.signature(fastapi.FastAPI).parameters[\"lifespan\"]")
UVICORN = "$PYTHON -m uvicorn --forwarded-allow-ips 127.0.0.1 --port $HTTP_PORT"
# A limiter that people have, or the dependency for FastAPI, on a site behind one proxy, the tests. `POST /login` fails
# closed, and `GET /` falls back to the limiter's own memory.
FLASK, SLOWAPI, DJANGO, FASTAPI, EXPRESS, EXPRESS_IOREDIS, HONO, FASTIFY, NEST = APPLICATIONS = [
    Row("flask", python("flask_limiter"), "$PYTHON -m flask --app flask_site run --port $HTTP_PORT",
        "flask_site.py limits_storage.py"),
    Row("slowapi", python("slowapi, uvicorn"), f"{UVICORN} slowapi_site:app", "slowapi_site.py limits_storage.py",
        is_required=PYPI_IS_REQUIRED),
    Row("django", python("rest_framework, werkzeug"), "$PYTHON django_site.py", "django_site.py django_throttles.py"),
    Row("fastapi", LIFESPAN, f"{UVICORN} fastapi_app:app", "fastapi_app.py",
        (("fastapi_app.py", "4, 20, 3600", "2, 3, 86400"),), PYPI_IS_REQUIRED),
    Row("express", node("express-rate-limit", "redis"), "node express_site.js", "express_site.js rate_limit_store.js"),
    Row("express_ioredis", node("express-rate-limit", "ioredis"), "node express_site.js",
        "express_site.js rate_limit_store.js ioredis.js", IOREDIS),
    Row("hono", node("hono-rate-limiter", "redis"), "node hono_site.js", "hono_site.js rate_limit_store.js"),
    Row("fastify", node("@fastify/rate-limit", "redis"), "node fastify_site.js", "fastify_site.js fastify_store.js"),
    Row("nest", node("@nestjs/throttler", "redis"), "node nest_site.js", "nest_site.js nest_store.js"),
]
# FastAPI's dependency, Fastify and Nest have no limiter of their own to fall back to.
FALLBACKS = [row for row in APPLICATIONS if row not in (FASTAPI, FASTIFY, NEST)]


@functools.cache
def case(row, **environment):
    return pytest.param((row, environment), id=row.name, marks=pytest.mark.xdist_group(row.name))


def on(rows, fixture="running", **environment):
    """Returns the mark of a situation that runs on these applications, each with further words of `environment`."""
    return pytest.mark.parametrize(fixture, [case(row, **environment) for row in rows], indirect=True)


class Answer(http.client.HTTPResponse):
    """An answer: its status, its headers, whose names may be in any case, and its body."""

    def numbers(self, *names):
        """Returns the status, and the number in each header: Retry-After, or "Limit" for X-RateLimit-Limit, or None."""
        values = [self.headers.get_all(name, []) + self.headers.get_all(f"X-RateLimit-{name}", []) for name in names]
        assert all(len(some) < 2 for some in values), values
        return self.status, *(int(some[0]) if some else None for some in values)


class Application:
    """An application, and its callers, who are addresses: it believes the tests' X-Forwarded-For."""

    def __init__(self, request, row, environment):
        self.request, self.row, self.http_port = request, row, free_port()
        # A new caller, each time that it is called: the address.
        self.caller = map(str, ipaddress.ip_network("192.168.0.0/16").hosts()).__next__
        self.own = tempfile.TemporaryDirectory(f".{os.getpid()}", "app-", TARGET)
        # An hour is longer than any machine takes: Redis decides each call that it gets.
        self.environment = {"OWN": self.own.name, "HTTP_PORT": self.http_port, "REDIS_TIMEOUT": 3600, **environment}
        if not is_found(row.check):
            (pytest.fail if row.is_required else pytest.skip)(f"what `{row.check}` asks for not found")

    def run(self, port, **streams):
        own = {"REDIS_URL": f"redis://127.0.0.1:{port}", "REDIS_AT": port, **self.environment}
        environment = {**ENVIRONMENT, **{name: str(value) for name, value in own.items()}}
        self.row.copy(self.own.name, environment)
        # The end by TERM is also that of nginx's workers.
        command = [*WITH_THE_TEST, "TERM", "sh", "-c", f"mkdir -p tmp && exec env {self.row.words}"]
        settings = {"cwd": self.own.name, "env": environment, "process_group": 0, "text": True}
        self.process = subprocess.Popen(command, **streams, **settings)
        self.request.addfinalizer(functools.partial(self.stop, self.process))

    def output(self, port, **environment):
        """Runs the program to its end, and returns what it prints and its errors."""
        self.environment.update(environment)
        self.run(port, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = self.process.communicate()
        assert self.process.returncode == 0, said
        return said

    def start(self, server):
        self.server, self.address = server, Address(server)
        self.run(self.address.port)
        wait_for(f"{self.row.name} serves HTTP", self.serves)
        return self

    def serves(self):
        assert self.process.poll() is None, "it has ended, see its output"
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", self.http_port))

    def stop(self, process):
        # The workers of nginx survive the process that started them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def get(self, path="/", caller=None, method="GET", body=None, times=None, sent=lambda: None, **headers):
        """Returns the answer to a caller; with `times`, those to that many, and `sent` is called when all have asked. A
        header is like X_Api_Key="secret"."""
        headers = {"Connection": "close", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if caller:
            headers["X-Forwarded-For"] = caller
        connections = [http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=120) for _ in range(times or 1)]
        for connection in connections:
            connection.response_class = Answer
            connection.request(method, path, body, headers)
        sent()
        answers = [connection.getresponse() for connection in connections]
        for answer in answers:
            answer.body = answer.read().decode()
        return answers if times else answers[0]

    def passed(self, times, caller, closed=False, sent=lambda: None):
        """Makes calls of a limit at once, one that is closed or not, and returns how many passed."""
        path, method, body = ("/login", "POST", f"username={caller}&password=guess") if closed else ("/", "GET", None)
        answers = self.get(path, caller, method, body, times, sent, Content_Type=FORM)
        statuses = [answer.status for answer in answers]
        assert {*statuses} <= {200, 429, 503}, statuses
        return statuses.count(200)

    def finds(self, server):
        """Leads the address to this server, and waits until the application's calls are decided by it."""
        self.server = self.address.server = server
        decides = lambda: self.passed(1, self.caller(), closed=True) and server("DBSIZE")
        wait_for(f"{self.row.name} finds its server", decides)
