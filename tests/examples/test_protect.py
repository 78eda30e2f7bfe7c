"""The log-in form of docs/protect.md: attacks, and the commands on the page."""

import json
import re
import subprocess
from collections import Counter

import pytest

from applications import FASTAPI, Application
from packages import ROOT

PAGE = (ROOT / "docs/protect.md").read_text()


@pytest.fixture
def app(request, server, clock, tmp_path):
    """The application, installed and started with the page's commands."""
    lines, words = re.search(r"```sh\n(.*)cd /tmp/protect && python3 (.*?)\n```", PAGE, re.S).groups()
    subprocess.run(["bash", "-ec", lines.replace("/tmp/protect", str(tmp_path))], cwd=ROOT, check=True)
    row = FASTAPI._replace(words=f"env -C {tmp_path} $PYTHON {words} --port $HTTP_PORT")
    return Application(request, row, {}).start(server)


def log_in(app, name, password, times=1, caller=None):
    """Returns the statuses of concurrent log-ins."""
    form = json.dumps({"name": name, "password": password})
    answers = app.get("/login", caller, "POST", form, times, Content_Type="application/json")
    assert {answer.headers["Cache-Control"] for answer in answers if answer.status in (429, 503)} <= {"no-store"}
    return Counter(answer.status for answer in answers)


def test_a_reader_sees_what_the_page_shows(app, server):
    page = PAGE.replace(":8000", f":{app.http_port}").replace("redis-cli", f"redis-cli --no-raw -p {server.port}")
    definitions = "".join(re.findall(r"^    \$ (?:url=|login\(\)).*\n", page, re.M))
    for part in page.split("\nStart the server again"):
        # A dollar sign begins a command. The lines below are its output.
        session = definitions + "".join(re.findall(r"^    \$ .*\n(?:    .*\n)*", part, re.M))
        commands = "".join(re.findall(r"^    \$ (.*\n)", session, re.M))
        # With -v, the shell prints each command before its output.
        shown = subprocess.check_output(["bash", "-v"], input=commands, stderr=subprocess.STDOUT, text=True)
        assert re.sub(" +$", "", shown, flags=re.M) == re.sub(r"^    (\$ )?", "", session, flags=re.M)
        server.kill()
        server.restart()


def test_200_guesses_at_once_get_five_tries_with_the_permissions_on_the_page(app, server, clock):
    rights = " ".join(re.findall(r"^ +ACL SETUSER login (.*)$", PAGE, re.M)).replace("on >secret ", "")
    server(f"ACL SETUSER default reset on nopass {rights} +keys")
    # A right password is accepted even if its refund, the second call of this command, gets no reply.
    app.address.fates("CL.MTHROTTLE", None, "broken off")
    assert log_in(app, "bob", "battery staple") == {200: 1}
    # A forged address is not trusted.
    assert log_in(app, "alice", "guess", 200, "192.0.2.1") == {401: 5, 429: 195}
    keys = {f"{name}:127.0.0.1" for name in ("address", "attempts", "banned", "offences")}
    assert {*server("KEYS *")} == keys | {"account:alice"}
    # Two attempts are back after the first ban. The third bans for a day.
    clock.set(clock.now + 3_601 * 10**9)
    assert log_in(app, "alice", "guess", 3) == {401: 2, 429: 1}
    assert server("PTTL banned:127.0.0.1") == 86_400_000


def test_all_spellings_of_a_name_share_five_tries_and_each_name_has_its_own(app, clock):
    assert log_in(app, "bob", "guess") == {401: 1}
    clock.set(clock.now + 30 * 10**9)
    spellings = "alice", " ALICE ", "\uff21lice", "Alice\n", "aLiCe"
    assert [log_in(app, spelling, "guess") for spelling in (*spellings, "alice")] == 5 * [{401: 1}] + [{429: 1}]
    # Both limits refuse alice, hers for 10 seconds and that of the address for 40.
    clock.set(clock.now + 170 * 10**9)
    assert [log_in(app, f"user{number}", "guess") for number in range(17)] == 17 * [{401: 1}]
    form = json.dumps({"name": "alice", "password": "guess"})
    refusal = app.get("/login", None, "POST", form, Content_Type="application/json")
    assert refusal.numbers("Retry-After") == (429, 40)
