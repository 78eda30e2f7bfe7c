"""The application of docs/protect.md, attacked, and every command that the page's reader types."""

import asyncio
import importlib
import json
import re
import subprocess

import pytest

from applications import UVICORN, Row, python
from packages import ROOT
from servers import Address, fates, wait_for
from test_frameworks import ask

PAGE = (ROOT / "docs/protect.md").read_text()
LIBRARIES, CALLER = python("fastapi, uvicorn, prometheus_client"), "192.0.2.1"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Returns the folder that the page's own lines make for the application."""
    make, copy, start = re.search(r"```sh\n(.*?)\n```", PAGE, re.S)[1].splitlines()
    assert start == "cd /tmp/protect && python3 -m uvicorn --no-proxy-headers protect:app"
    made = tmp_path_factory.mktemp("protect")
    subprocess.run(["bash", "-ec", f"{make}\n{copy}".replace("/tmp/protect", str(made))], cwd=ROOT, check=True)
    return made


@pytest.fixture
def server(new_server, clock):
    # No token comes back in Redis.
    return new_server(environment=clock.environment)


@pytest.fixture(params=LIBRARIES)
def protect(request, start, server, folder):
    """Starts the application on the server, or at this address. With a timeout of an hour, Redis decides each call."""
    row = Row("protect", LIBRARIES, f"env -C {folder} {UVICORN} protect:app")
    return lambda port=None, **words: start(row, port or server.port, request.param, **{"TIMEOUT": 3600, **words})


def log_in(app, name, password, times=1):
    """Returns the status that a log-in gets, or those of that many at once."""
    form = json.dumps({"name": name, "password": password})
    answers = app.get("/login", CALLER, "POST", form, times, Content_Type="application/json")
    return [answer.status for answer in answers] if times > 1 else answers[0].status


def attack(app):
    """Attacks with guesses, as a visitor and as a customer, and returns how many of each get through."""
    guesses = log_in(app, "alice", "guess", 200)
    visits, calls = (
        [answer.status for answer in app.get("/items/7", CALLER, times=200, **key)]
        for key in ({}, {"X_API_Key": "secret-of-acme"})
    )
    assert {*guesses} <= {401, 429, 503} and {*visits, *calls} <= {200, 429}
    return guesses.count(401), visits.count(200), calls.count(200)


def test_a_reader_sees_what_the_page_shows(protect, server):
    app = protect(PROXY="")
    # All commands run in one shell. A line that begins with a dollar sign is one, and its output is below.
    bash = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for part in re.split("^Start the server again", PAGE, flags=re.M):
        for command, expected in re.findall(r"^    \$ (.*)\n((?:    (?!\$ ).*\n)*)", part, re.M):
            typed = command.replace(":8000", f":{app.http_port}")
            typed = typed.replace("redis-cli", f"redis-cli --no-raw -p {server.port}")
            print(f"{typed}\necho end", file=bash.stdin, flush=True)
            shown = [line.strip() for line in iter(bash.stdout.readline, "end\n")]
            assert shown == [line.strip() for line in expected.splitlines()], command
        server.restart()
    bash.stdin.close()
    assert bash.wait() == 0


def test_200_at_once_get_through_exactly_to_the_limits_with_the_rights_on_the_page(protect, server):
    rights = " ".join(re.findall(r"^    ACL SETUSER login (.*)$", PAGE, re.M)).replace("on >secret ", "")
    assert "+eval" in rights and "~account:*" in rights
    server(f"ACL SETUSER default reset on nopass {rights} +acl")
    app = protect()
    assert log_in(app, "bob", "battery staple") == 200
    assert attack(app) == (5, 5, 10)
    denied = str(server("ACL LOG"))
    assert not [command for command in ("eval", "cl.", "pttl", "'set'") if command in denied], denied


def test_without_redis_no_log_in_passes_and_a_visitor_gets_the_share(protect, server):
    app = protect(TIMEOUT=2)
    right = lambda: log_in(app, "bob", "battery staple")
    server.signal("STOP")
    assert right() == 503
    server.signal("CONT")
    wait_for("one attempt is charged", lambda: server(f"CL.LOOK attempts:{CALLER} 49 50 86400")[2] == 49)
    assert server(f"EXISTS account:bob address:{CALLER}") == 0
    server.kill()
    assert right() == 503
    # The tokens of a share come back by the real clock: a visitor's day has 30.
    guesses, visits, calls = attack(app)
    assert guesses == 0 and 5 <= visits <= 30 and calls >= 10
    server.restart()
    wait_for("Redis is found again", lambda: right() == 200)


def test_a_limited_address_and_an_unknown_api_key_make_no_limiter(protect, server):
    app = protect()
    assert [log_in(app, f"name{number}", "guess") for number in range(25)] == [401] * 20 + [429] * 5
    # The address has two limiters, and each name that was tried has one.
    assert server("DBSIZE") == 22
    visits = [app.get("/items/7", CALLER, X_API_Key=f"unknown{number}").status for number in range(6)]
    assert visits == [200] * 5 + [429] and server("DBSIZE") == 23


def test_a_right_password_is_accepted_even_if_it_is_not_given_back_and_each_count_begins_at_0(protect, server):
    address = Address(server)
    # The second call of this command gives back.
    address.filter = fates("CL.MTHROTTLE", None, "lost")
    app = protect(address.port, TIMEOUT=2)
    counts = lambda: re.findall(r"^limit_calls_total(\{.*\}) (.*)$", app.get("/metrics").body, re.M)
    # Prometheus sees how much a count grows only from its second value on.
    assert [count for _, count in counts()] == ["0.0"] * 15
    assert log_in(app, "bob", "battery staple") == 200
    assert ('{limit="login given back",result="closed"}', "1.0") in counts()


def test_a_length_of_any_number_of_digits_is_an_answer(monkeypatch, folder):
    """Some parsers of HTTP hand it on, such as httptools; Python converts 4,300 digits at most."""
    monkeypatch.syspath_prepend(folder)
    app = importlib.import_module("protect").app
    for length in b"0" * 4402 + b"5", b"9" * 4402, b"", b"-1", b"1e3":
        assert asyncio.run(ask(app, type="http", headers=[(b"content-length", length)]))[0] == 413


def test_a_large_body_is_refused_before_it_is_read_and_a_form_of_any_letters_is_answered(protect):
    app = protect()
    lengths = {f"Content-Length: {length}": {400, 413} for length in ("36000000", "4097", "9" * 4300, "-1", "٣")}
    # None of these bodies comes.
    for header, statuses in {**lengths, "Transfer-Encoding: chunked": {411}}.items():
        for path in "/login", "/items/7", "/none":
            answers = app.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())
            assert answers[0].status in statuses, (path, header)
    long = "\U0001f600" * 64
    for name, password in ("\ud800", "\0"), ("\0", "\ud800"), (long, "\ud800"):
        assert log_in(app, name, password) in (401, 422)
    assert log_in(app, long, 4 * long) == 401
    assert log_in(app, "alice", "x" * 257) == 422


def test_two_attempts_are_back_after_the_first_ban_and_the_third_bans_for_a_day(protect, server):
    app, attempts = protect(), f"attempts:{CALLER} 49 50 86400"
    server(f"CL.CHARGE {attempts} 50")
    two, three = (server(f"CL.LOOK {attempts} {number}")[3] for number in (2, 3))
    assert two <= 3600 < three
    # The state after the hour: one offence, and two attempts.
    server(f"CL.TAKE offences:{CALLER} 1 1 86400 1")
    server(f"CL.CHARGE {attempts} -2")
    assert [log_in(app, "alice", "guess") for _ in range(3)] == [401, 401, 429]
    assert server(f"TTL banned:{CALLER}") > 3600
