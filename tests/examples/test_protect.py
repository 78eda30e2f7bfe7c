"""The application of docs/protect.md, attacked, and every command that the page's reader types."""

import importlib
import json
import re
import subprocess

import pytest

from applications import Row, python
from packages import ROOT
from servers import Address, fates

PAGE = (ROOT / "docs/protect.md").read_text()
CALLER = "192.0.2.1"


@pytest.fixture
def folder(tmp_path):
    """The folder that the page's own lines make for the application."""
    lines = PAGE.split("```sh\n")[1].split("cd /tmp/protect")[0]
    subprocess.run(["bash", "-ec", lines.replace("/tmp/protect", str(tmp_path))], cwd=ROOT, check=True)
    return tmp_path


@pytest.fixture
def app(start, new_server, clock, folder):
    """The application, started by the page's own words, and its server, to which no token comes back by itself."""
    words = re.search("^cd /tmp/protect && python3 (.*)", PAGE, re.M)[1].replace("protect:app", "failing:app")
    # The application has a further route, which fails.
    failing = 'app.get("/fails", dependencies=[Depends(limited)])(lambda: 1 / 0)'
    (folder / "failing.py").write_text(f"from protect import Depends, app, limited\n{failing}")
    row = Row("protect", python("fastapi, uvicorn, prometheus_client"), f"env -C {folder} $PYTHON {words} --port $HTTP_PORT")
    server = new_server(environment=clock.environment)
    address = Address(server)
    # Redis decides all calls, however late.
    app = start(row, address.port, TIMEOUT=3600)
    app.server, app.address = server, address
    return app


def log_in(app, name, password, times=None):
    """Returns the status that a log-in gets, or those of that many at once."""
    form = json.dumps({"name": name, "password": password})
    answers = app.get("/login", CALLER, "POST", form, times, Content_Type="application/json")
    return [answer.status for answer in answers] if times else answers.status


def attack(app, refused):
    """Attacks with guesses, as a visitor and as a customer, and returns how many of each get through."""
    request = lambda key: [answer.status for answer in app.get("/items/7", CALLER, times=200, X_API_Key=key)]
    guesses, visits, calls = log_in(app, "alice", "guess", 200), request("unknown"), request("secret-of-acme")
    assert {*guesses} <= {401, refused} and {*visits, *calls} <= {200, 429}
    return guesses.count(401), visits.count(200), calls.count(200)


def test_a_reader_sees_what_the_page_shows(app):
    page = PAGE.replace(":8000", f":{app.http_port}").replace("redis-cli", f"redis-cli --no-raw -p {app.server.port}")
    # All commands run in one shell. A line that begins with a dollar sign is one, and its output is below.
    with subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bash:
        for part in re.split("^Start the server again", page, flags=re.M):
            for command, expected in re.findall(r"^    \$ (.*)\n((?:    (?!\$ ).*\n)*)", part, re.M):
                print(f"{command}\necho end", file=bash.stdin, flush=True)
                shown = [line.strip() for line in iter(bash.stdout.readline, "end\n")]
                assert shown == [line.strip() for line in expected.splitlines()], command
            app.server.restart()


def test_200_at_once_get_through_exactly_to_the_limits_with_the_rights_on_the_page(app, clock):
    rights = " ".join(re.findall(r"^    ACL SETUSER login (.*)$", PAGE, re.M)).replace("on >secret ", "")
    app.server(f"ACL SETUSER default reset on nopass {rights} +dbsize")
    assert log_in(app, "bob", "battery staple") == 200
    assert attack(app, refused=429) == (5, 5, 10)
    # An address has four limiters and a ban, an account and a customer have one. An unknown key has none.
    assert app.server("DBSIZE") == 7
    # Two attempts are back after the first ban. The third bans for a day.
    clock.set(clock.now + 3_601 * 10**9)
    assert [log_in(app, "alice", "guess") for _ in range(3)] == [401, 401, 429]
    assert app.server(f"PTTL banned:{CALLER}") == 86_400_000
    app.server.kill()
    guesses, visits, calls = attack(app, refused=503)
    # The tokens of a share come back by the real clock: a visitor's day has 30.
    assert guesses == 0 and 5 <= visits <= 30 and calls >= 10


def test_a_right_password_is_accepted_even_if_it_is_not_given_back_and_each_count_begins_at_0(app, address):
    counts = lambda: re.findall(r"^limit_calls_total\{(.*)\} (.*)$", app.get("/metrics").body, re.M)
    # Prometheus sees how much a count grows only from its second value on.
    assert [count for _, count in counts()] == ["0.0"] * 15
    # The second call of this command gives back.
    address.filter = fates("CL.MTHROTTLE", None, "broken off")
    assert log_in(app, "bob", "battery staple") == 200
    assert ('limit="login given back",result="closed"', "1.0") in counts()


def test_whatever_answers_shows_the_headers_of_the_limit(app):
    paths = {"/fails": 500, "/items/7": 200, "/items/x": 422}
    shown = [app.get(path, CALLER).numbers("Limit", "Remaining") for path in paths]
    assert shown == [(status, 5, 4 - number) for number, status in enumerate(paths.values())]


def test_a_body_without_a_small_length_is_refused_before_it_is_read(monkeypatch, folder):
    pytest.importorskip("httpx2")
    from starlette.testclient import TestClient

    monkeypatch.syspath_prepend(folder)
    app = importlib.import_module("protect").app
    # Some parsers of HTTP, such as httptools, hand on any digits. Python converts 4,300 of them at most.
    lengths = b"36000000", b"4097", b"0" * 4402 + b"5", b"9" * 4402, b"\xb2", b"", b"-1", b"1e3"
    refused = {(b"content-length", length): 413 for length in lengths}
    for header, status in {**refused, (b"transfer-encoding", b"chunked"): 411}.items():
        assert TestClient(app).post("/login", headers=[header]).status_code == status, header


def test_the_decision_of_several_limits_is_that_of_the_limited_ones(monkeypatch, folder):
    monkeypatch.syspath_prepend(folder)
    decide = importlib.import_module("protect").decide_together
    allowed, waiting, never = [0, 5, 4, -1, 60], [1, 5, 0, 180, 900], [1, 0, 0, -1, 0]
    assert decide([1, allowed, waiting], 2) == (429, {"Retry-After": "180"}, "limited")
    for rows, status in ([0, allowed, allowed], 200), ([1, waiting, never], 403), ([1, never, allowed], 403):
        assert decide(rows, 2)[0] == status
    wrong = [None, "OK", 0, [], [0], [0, allowed], [0, allowed, allowed, allowed], [1, allowed, allowed]]
    wrong += [[0, allowed, row] for row in (waiting, None, 0, allowed[1:], [*allowed, 1], [2, *allowed[1:]])]
    wrong += [[limited, allowed, waiting] for limited in (True, 1.0, "1", 2, -1, None)]
    for reply in *wrong, [False, allowed, allowed], allowed:
        assert decide(reply, 2)[0] == 503, reply


def test_a_form_is_answered_whatever_its_letters(app):
    long = "\U0001f600" * 64
    for name, password in ("\ud800", "\0"), ("\0", "\ud800"), (long, "\ud800"):
        assert log_in(app, name, password) in (401, 422)
    assert log_in(app, long, 4 * long) == 401
    assert log_in(app, "alice", "x" * 257) == 422
