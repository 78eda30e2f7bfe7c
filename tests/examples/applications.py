"""The applications and programs under test, each a row of a table, and the callers of the applications."""

import contextlib
import functools
import http.client
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from packages import HERE, IS_DEBIAN, LUA, NODE, PYTHON, ROOT, TARGET
from servers import WITH_THE_TEST, Address, free_port, wait_for

# The limit of a caller: a burst of three.
LIMIT = 3
ENVIRONMENT = {
    **os.environ, "PYTHON": sys.executable, "PYTHONPATH": f"{PYTHON}:{ROOT}/clients/python:.",
    "PYTHONUNBUFFERED": "yes", "NODE_PATH": NODE,
    "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": f"{TARGET}/go",
    "LUA_PATH": f"{LUA}/?.lua;;",
}


@functools.cache
def is_found(check):
    return not subprocess.run(["sh", "-c", check], env=ENVIRONMENT, capture_output=True).returncode


# Set by scripts/test after installing everything: a test then fails, rather than being skipped, if a thing is missing.
REQUIRE_ALL = "REQUIRE_ALL" in os.environ
# Debian lacks slowapi and valkey-py, its FastAPI is too old, and its Node.js may not run the libraries from npm.
NEWEST_ARE_REQUIRED = REQUIRE_ALL and not IS_DEBIAN
PHP_IS_REQUIRED = REQUIRE_ALL and "EVERYWHERE" in os.environ


class Row(NamedTuple):
    """An application or a program: its name, a command that fails if something is missing, the words that start it in a
    folder with copies of docs/clients and this folder's sites, and commands that edit the copies as a user would."""

    name: str
    check: str
    words: str
    edits: str = ""
    is_required: bool = REQUIRE_ALL


def python(module):
    return f"$PYTHON -c 'import {module}'"


def node(*modules):
    return "node -e '%s'" % ";".join(f'require("{module}")' for module in modules)


UVICORN = "$PYTHON -m uvicorn --forwarded-allow-ips 127.0.0.1 --port $HTTP_PORT"
# Only FastAPI 0.111 and newer have fastapi.cli. Our package needs 0.115.3.
HAS_FASTAPI = python("uvicorn, fastapi.cli")


def example(heading):
    """Prints the first example below the heading in docs/frameworks.md."""
    return f"sed -n '/^## {heading}$/,/^```$/p' {ROOT}/docs/frameworks.md | sed '1,/^```/d; $d'"


def page(heading):
    """Writes page.py: the example, with the test's server and timeout."""
    return f"""{example(heading)} >page.py
    sed -i "s,=0.1,=$REDIS_TIMEOUT,; s,redis://localhost:6379,$REDIS_URL,
        s|cell://localhost:6379/0|cell://${{REDIS_URL#redis://}}?socket_timeout=$REDIS_TIMEOUT|" page.py"""


def with_valkey_py(row):
    edits = rf"""{row.edits}
    sed -i -E 's/\bredis(\.|$)/valkey\1/g; s/redis-cell:/valkey-cell:/' page.py"""
    return row._replace(name=f"{row.name}_valkey", check=python("valkey"), edits=edits, is_required=NEWEST_ARE_REQUIRED)


# ES modules find packages in node_modules, and ignore NODE_PATH.
MODULES = "mkdir -p node_modules; ln -sf ${NODE_PATH##*:}/* node_modules"


def javascript(site, *modules, edits=""):
    """Returns two rows: the site as it is, with the client of node_redis.mjs, and with that of ioredis.mjs. The stores
    have the test's timeout."""
    edits += f"""
    {MODULES}
    ln -s {ROOT}/clients/node node_modules/redis-cell  # This is what npm does.
    sed -i "s/sendCommand, prefix/timeout: $((1000 * REDIS_TIMEOUT)), &/" *_site.*js"""
    row = Row(site, node(*modules), f"node {site}_site.mjs", edits, NEWEST_ARE_REQUIRED)
    edits += "\n    sed -i 's/node_redis/ioredis/; s/sendCommand(words)/call(...words)/' *_site.*js"
    return row, row._replace(name=f"{site}_ioredis", edits=edits)


# A site for each limiter. The tests act as the proxy in front of it. `POST /login` fails closed; `GET /` falls back.
FLASK = Row("flask", python("flask_limiter"), "$PYTHON -m flask --app page run --port $HTTP_PORT", f"""
    {page("Flask-Limiter")}
    echo 'from werkzeug.middleware.proxy_fix import ProxyFix' >>page.py
    echo 'app.wsgi_app = ProxyFix(app.wsgi_app)' >>page.py""")
SLOWAPI = Row("slowapi", python("slowapi, uvicorn"), f"{UVICORN} slowapi_site:app", rf"""{page("slowapi")}
    sed -i '1i from slowapi import Limiter\nfrom slowapi.util import get_remote_address
        s/, strategy/, headers_enabled=True&/
        s/^limiter\(.*\))/&\nfallback\1, in_memory_fallback_enabled=True)/' page.py""", NEWEST_ARE_REQUIRED)
DJANGO = Row("django", python("rest_framework, werkzeug"), "$PYTHON django_site.py", page("Django REST framework"))
FASTAPI = Row("fastapi", HAS_FASTAPI, f"{UVICORN} page:app", page("FastAPI and Starlette"), NEWEST_ARE_REQUIRED)
WITH_VALKEY = FLASK_VALKEY, DJANGO_VALKEY, FASTAPI_VALKEY = [*map(with_valkey_py, (FLASK, DJANGO, FASTAPI))]
# page_site.js wraps the page's example in a function, whose windowMs replaces the example's minute.
EXPRESS, EXPRESS_IOREDIS = javascript("express", "express", "express-rate-limit", edits=f"""
    (echo 'module.exports = (client, app, rateLimit, windowMs, logIn) => {{'
    {example("express-rate-limit and hono-rate-limiter")} | sed 's/: 60_000//'
    echo '}};') >page_site.js""")
HONO, _ = javascript("hono", "@hono/node-server", "hono-rate-limiter")
FASTIFY, FASTIFY_IOREDIS = javascript("fastify", "fastify", "@fastify/rate-limit")
NEST, NEST_IOREDIS = javascript("nest", "@nestjs/platform-express", "@nestjs/throttler")
# nginx.conf's server gets the location from docs/nginx.md. second.lua is throttle.lua with another Redis server.
NGINX = Row(
    "nginx", f"ls /usr/lib/nginx/modules/ngx_http_lua_module.so && (ls {LUA}/nginx || ls /usr/share/lua/5.1/nginx)",
    "nginx -p $PWD -c $PWD/nginx_site.conf -g 'daemon off;'", f"""
    mkdir tmp
    sed -n '/^```nginx/,/^```/{{//!p}}' {ROOT}/docs/nginx.md >page.conf
    grep ^map page.conf >page_map.conf
    grep -v ^map page.conf >page_location.conf
    echo 'location /own {{ proxy_set_header X-Site shop; proxy_pass http://application; }}' >>page_location.conf
    sed -i "s/PORT/$HTTP_PORT/" nginx_site.conf
    sed -i "s/127.0.0.1:8080;/127.0.0.1:$HTTP_PORT; include page_location.conf;/; s,/etc/nginx,$PWD,
        s/127.0.0.1:8081/unix:application/
        s/# set_real_ip_from 192.0.2.1;/${{PROXY-set_real_ip_from 127.0.0.1;}}/" nginx.conf
    sed -i "s/6379, 100/${{REDIS_URL##*:}}, 1000 * $REDIS_TIMEOUT/" throttle.lua
    sed "s|TIMEOUT = .*|TIMEOUT = ${{SECOND-}}|" throttle.lua >second.lua""")
LIMITERS = [
    FLASK, SLOWAPI, DJANGO, FASTAPI, *WITH_VALKEY,
    EXPRESS, EXPRESS_IOREDIS, HONO, FASTIFY, FASTIFY_IOREDIS, NEST, NEST_IOREDIS, NGINX,
]


def on(rows, fixture="app", **environment):
    """Parametrizes a test with these applications, and sets further environment variables."""
    cases = [pytest.param((row, environment), id=row.name) for row in rows]
    return pytest.mark.parametrize(fixture, cases, indirect=True)


class Answer(http.client.HTTPResponse):
    def numbers(self, *names):
        """Returns the status, and each header's number or None. "Limit" stands for X-RateLimit-Limit, for example."""
        found = [self.headers[name] or self.headers[f"X-RateLimit-{name}"] or self.headers[f"RateLimit-{name}"]
                 for name in names]
        return self.status, *(number and int(number) for number in found)


class Application:
    """The process of a row. Its callers are addresses: it trusts the tests' X-Forwarded-For."""

    def __init__(self, request, row, environment):
        if not is_found(row.check):
            (pytest.fail if row.is_required else pytest.skip)(f"this fails: {row.check}")
        self.request, self.row, self.http_port = request, row, free_port()
        # Returns the address of a new caller.
        self.caller = map(str, ipaddress.ip_network("192.168.0.0/16").hosts()).__next__
        self.own = tempfile.TemporaryDirectory(f".{os.getpid()}", "app-", TARGET)
        self.folder = Path(self.own.name)
        for file in [*(ROOT / "docs/clients").iterdir(), *HERE.glob("*_site.*")]:
            shutil.copy(file, self.folder)
        # With a timeout of an hour, no call times out on a slow machine.
        self.environment = {"HTTP_PORT": self.http_port, "REDIS_TIMEOUT": 3600, **environment}

    def run(self, url, **streams):
        own = {"REDIS_URL": url, **self.environment}
        environment = {**ENVIRONMENT, **{name: str(value) for name, value in own.items()}}
        # If the test is killed, end the process with SIGTERM, so that nginx stops its workers, too.
        command = [*WITH_THE_TEST, "TERM", "sh", "-ec", f"{self.row.edits}\nexec {self.row.words}"]
        settings = {"cwd": self.folder, "env": environment, "process_group": 0, "text": True}
        self.process = subprocess.Popen(command, **streams, **settings)
        self.request.addfinalizer(functools.partial(self.stop, self.process))

    def output(self, server, user="", scheme="redis", path="", **environment):
        """Runs the program until it exits. Returns its output and errors."""
        self.environment.update(environment)
        url = f"{scheme}://{user}127.0.0.1:{server.port}{path}"
        self.run(url, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = self.process.communicate()
        assert self.process.returncode == 0, said
        return said

    def start(self, server):
        self.address = Address(server)
        self.run(f"redis://127.0.0.1:{self.address.port}")
        wait_for(f"{self.row.name} serves HTTP", self.serves)
        return self

    def serves(self):
        assert self.process.poll() is None, "it has exited, see its output"
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", self.http_port))

    def stop(self, process):
        # Kill the whole process group, because nginx's workers survive the process that started them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def get(self, path="/", caller=None, method="GET", body=None, times=None, sent=lambda: None, **headers):
        """Returns the response. With `times`, sends that many concurrent requests, calls `sent`, and returns a list of
        responses. X_Api_Key="secret" is a header."""
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

    def log_in(self, **request):
        return self.get("/login", method="POST", **request)

    def passed(self, times, caller, closed=False, sent=lambda: None, **headers):
        """Sends concurrent requests to the route that fails closed, or to the other one. Returns how many passed."""
        ask = self.log_in if closed else self.get
        statuses = [answer.status for answer in ask(caller=caller, times=times, sent=sent, **headers)]
        assert {*statuses} <= {200, 429, 503}, statuses
        return statuses.count(200)
