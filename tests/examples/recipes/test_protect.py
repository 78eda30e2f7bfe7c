"""Tests of the log-in form in docs/protect.md: attacks on the form, and the commands on the page."""

import json
import re
import subprocess
from collections import Counter

import pytest

from applications import HAS_FASTAPI, NEWEST_ARE_REQUIRED, UVICORN, Application, Row
from packages import ROOT

PAGE = (ROOT / "docs/protect.md").read_text()
# docs/protect/protect.py behind a trusted proxy. `start` adds the folder in which it has installed the program.
PROTECT = Row("protect", HAS_FASTAPI, f"{UVICORN} protect:app", is_required=NEWEST_ARE_REQUIRED)


@pytest.fixture
def start(request, server, tmp_path):
    """Installs the application with the page's commands. Starts it with the last of these, or with a row's command."""
    lines, words = re.search(r"```sh\n(.*)cd /tmp/protect && python3 (.*?)\n```", PAGE, re.S).groups()
    subprocess.run(["bash", "-ec", lines.replace("/tmp/protect", str(tmp_path))], cwd=ROOT, check=True)
    # Keep calls from timing out on a slow machine.
    edits = f"cd {tmp_path}; REDIS_URL=$REDIS_URL?timeout=60\\&socket_timeout=60\\&socket_connect_timeout=60"
    as_on_the_page = PROTECT._replace(words=f"$PYTHON {words} --port $HTTP_PORT")
    return lambda row=as_on_the_page: Application(request, row._replace(edits=edits), {}).start(server)


@pytest.fixture
def app(start):
    return start()


@pytest.fixture
def behind_a_proxy(start):
    return start(PROTECT)


def log_in(app, name, password, times=1, caller=None):
    """Makes concurrent log-ins. Returns how often each status occurred."""
    form = json.dumps({"name": name, "password": password})
    answers = app.get("/login", caller, "POST", form, times, Content_Type="application/json")
    assert {answer.headers["Cache-Control"] for answer in answers if answer.status in (429, 503)} <= {"no-store"}
    return Counter(answer.status for answer in answers)


def test_a_reader_sees_what_the_page_shows(app, server):
    page = PAGE.replace(":8000", f":{app.http_port}").replace("redis-cli", f"redis-cli --no-raw -p {server.port}")
    definitions = "".join(re.findall(r"^    \$ (?:url=|login\(\)).*\n", page, re.M))
    for part in page.split("\nStart the server again"):
        # In docs/protect.md, a dollar sign marks a command. The lines below the command are its output.
        session = definitions + "".join(re.findall(r"^    \$ .*\n(?:    .*\n)*", part, re.M))
        commands = "".join(re.findall(r"^    \$ (.*\n)", session, re.M))
        # With -v, the shell prints each command before its output.
        shown = subprocess.check_output(["bash", "-v"], input=commands, stderr=subprocess.STDOUT, text=True)
        assert re.sub(" +$", "", shown, flags=re.M) == re.sub(r"^    (\$ )?", "", session, flags=re.M)
        server.kill()
        server.restart()


def test_200_guesses_at_once_get_five_tries_with_the_permissions_on_the_page(app, server):
    rights = " ".join(re.findall(r"^ +ACL SETUSER login (.*)$", PAGE, re.M)).replace("on >secret ", "")
    server(f"ACL SETUSER default reset on nopass {rights} +keys")
    # A right password is accepted even if the refund, which is the second CL.MTHROTTLE, gets no reply.
    app.address.fates("CL.MTHROTTLE", None, "broken off")
    assert log_in(app, "bob", "battery staple") == {200: 1}
    # A forged address is not trusted.
    assert log_in(app, "alice", "guess", 200, "192.0.2.1") == {401: 5, 429: 195}
    assert {*server("KEYS *")} == {"account:1", "address:127.0.0.1", "wrong:127.0.0.1"}


def test_the_last_wrong_password_bans_its_address_for_an_hour_and_the_next_time_for_a_day(app, server, clock):
    guess = lambda names: sum((log_in(app, f"user{name}", "guess", 5) for name in names), Counter())
    assert guess(range(10)) == {401: 50}
    assert server("PTTL banned:127.0.0.1") == 3_600_000
    assert log_in(app, "bob", "battery staple") == {429: 1}
    # After the ban, two tokens for wrong passwords are back. The second wrong password starts the next ban.
    clock.set(clock.now + 3_601 * 10**9)
    assert log_in(app, "bob", "guess", 2) == {401: 2}
    assert server("PTTL banned:127.0.0.1") == 86_400_000


def test_right_log_ins_that_the_accounts_limit_refuses_do_not_ban_their_address(behind_a_proxy):
    app = behind_a_proxy
    attacker, office = app.caller(), app.caller()
    assert log_in(app, "alice", "guess", 5, attacker) == {401: 5}
    assert log_in(app, "alice", "correct horse", 52, office) == {429: 52}
    assert log_in(app, "bob", "battery staple", 1, office) == {200: 1}


def test_all_names_of_an_account_share_five_tries_and_a_name_without_an_account_has_its_own(app, clock):
    assert log_in(app, "bob", "guess") == {401: 1}
    clock.set(clock.now + 30 * 10**9)
    names = "alice", " ALICE ", "\uff21lice@example.com", "Alice\n", "aLiCe"
    assert [log_in(app, name, "guess") for name in (*names, "alice")] == 5 * [{401: 1}] + [{429: 1}]
    # The number of alice's account is 1, but no account has the name "1", so this name has its own five tries.
    assert [log_in(app, "1", "guess") for _ in range(6)] == 5 * [{401: 1}] + [{429: 1}]


def test_a_caller_waits_for_the_longer_of_two_limits(app, server):
    server("CL.MTHROTTLE account:1 4 20 3600 5 address:127.0.0.1 59 60 3600 60")
    form = json.dumps({"name": "alice", "password": "guess"})
    refusal = app.get("/login", None, "POST", form, Content_Type="application/json")
    assert refusal.numbers("Retry-After") == (429, 180)


def test_the_address_that_the_proxy_adds_is_limited(behind_a_proxy, server):
    # The caller has forged 10.0.0.1. An IPv4 address in IPv6 notation gets the same key as in IPv4 notation.
    for header, limited in {
        "10.0.0.1, 192.0.2.7": "192.0.2.7", "::ffff:1.2.3.4": "1.2.3.4", "1:DB8:0:02::9": "1:db8:0:2::/64",
    }.items():
        server("FLUSHALL")
        assert log_in(behind_a_proxy, "carol", "guess", 1, header) == {401: 1}
        assert {*server("KEYS *")} == {"unknown:carol", f"address:{limited}", f"wrong:{limited}"}


@pytest.mark.parametrize("failure", ["crash", "failover", "permission"])
def test_without_an_answer_nobody_logs_in_and_the_application_recovers_by_itself(app, server, new_server, failure):
    begin, end = {
        "crash": (server.kill, server.restart),
        # After the failover, an open connection still leads to the old primary.
        "failover": (lambda: server("REPLICAOF 127.0.0.1 1"), lambda: setattr(app.address, "server", new_server())),
        "permission": (lambda: server("ACL SETUSER default -cl.mthrottle"),
                       lambda: server("ACL SETUSER default +cl.mthrottle")),
    }[failure]
    assert log_in(app, "bob", "battery staple") == {200: 1}
    begin()
    assert log_in(app, "bob", "battery staple", 9) == {503: 9}
    end()
    assert log_in(app, "bob", "battery staple") == {200: 1}


def test_an_idle_connection_that_the_server_has_closed_costs_no_log_in(app, server):
    for _ in range(2):
        assert log_in(app, "bob", "battery staple") == {200: 1}
        server("CLIENT KILL TYPE normal")
        # Send another request, so that the application's event loop notices the closed connection before the next
        # log-in.
        app.get("/missing")
