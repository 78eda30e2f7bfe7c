"""The application of docs/protect.md, attacked, and every command that the page's reader types."""

import json
import re
import subprocess
from collections import Counter

import pytest

from applications import PYPI_IS_REQUIRED, Row, python
from packages import IS_DEBIAN, ROOT

PAGE = (ROOT / "docs/protect.md").read_text()
# A caller who makes up addresses.
CALLER = "192.0.2.1"


@pytest.fixture
def app(start, new_server, clock, tmp_path):
    """The application, made and started by the page's own lines, and its server, to which no token comes back."""
    lines, words = re.search(r"```sh\n(.*)cd /tmp/protect && python3 (.*?)\n```", PAGE, re.S).groups()
    subprocess.run(["bash", "-ec", lines.replace("/tmp/protect", str(tmp_path))], cwd=ROOT, check=True)
    libraries = python("fastapi, limits, uvicorn, prometheus_client")
    row = Row("protect", libraries, f"env -C {tmp_path} $PYTHON {words} --port $HTTP_PORT")
    return start(row, new_server(environment=clock.environment))


def log_in(app, name, password, times=1):
    """Returns the statuses of that many log-ins at once."""
    form = json.dumps({"name": name, "password": password})
    answers = app.get("/login", CALLER, "POST", form, times, Content_Type="application/json")
    return Counter(answer.status for answer in answers)


def test_a_reader_sees_what_the_page_shows(app):
    page = PAGE.replace(":8000", f":{app.http_port}").replace("redis-cli", f"redis-cli --no-raw -p {app.server.port}")
    definitions = "".join(re.findall(r"^    \$ (?:url=|login\(\)).*\n", page, re.M))
    for part in page.split("\nStart the server again"):
        # A line that begins with a dollar sign is a command, and its output is below.
        session = definitions + "".join(re.findall(r"^    \$ .*\n(?:    .*\n)*", part, re.M))
        commands = "".join(re.findall(r"^    \$ (.*\n)", session, re.M))
        # With -v, the shell shows each command before its output.
        shown = subprocess.check_output(["bash", "-v"], input=commands, stderr=subprocess.STDOUT, text=True)
        assert re.sub(" +$", "", shown, flags=re.M) == re.sub(r"^    (\$ )?", "", session, flags=re.M)
        app.server.kill()
        app.server.restart()


def test_200_at_once_get_through_exactly_to_the_limits_with_the_rights_on_the_page(app, clock):
    visit = lambda key: Counter(answer.status for answer in app.get("/items/7", CALLER, times=200, X_API_Key=key))
    rights = " ".join(re.findall(r"^    ACL SETUSER login (.*)$", PAGE, re.M)).replace("on >secret ", "")
    app.server(f"ACL SETUSER default reset on nopass {rights} +keys")
    assert log_in(app, "bob", "battery staple") == {200: 1}
    assert log_in(app, "alice", "guess", 200) == {401: 5, 429: 195}
    assert visit("unknown") == {200: 5, 429: 195} and visit("secret-of-acme") == {200: 10, 429: 190}
    # An address has four limiters and a ban, an account and a customer have one. An unknown key has none.
    keys = app.server("KEYS *")
    assert len(keys) == 7 and "visitor:127.0.0.1" in keys
    # Two attempts are back after the first ban. The third bans for a day.
    clock.set(clock.now + 3_601 * 10**9)
    assert log_in(app, "alice", "guess", 3) == {401: 2, 429: 1}
    assert app.server("PTTL banned:127.0.0.1") == 86_400_000
    app.server.kill()
    assert log_in(app, "alice", "guess", 200) == {503: 200}
    assert visit("unknown") == {200: 5, 503: 195}


def test_a_right_password_is_accepted_even_if_it_is_not_given_back_and_each_count_begins_at_0(app):
    counts = lambda: dict(re.findall(r"^limit_calls_total\{(.*)\} (.*)$", app.get("/metrics").body, re.M))
    # Prometheus sees how much a count grows only from its second value on.
    assert [*counts().values()] == ["0.0"] * 15
    # The second call of this command gives back.
    app.address.fates("CL.MTHROTTLE", None, "broken off")
    assert log_in(app, "bob", "battery staple") == {200: 1}
    assert counts()['limit="login given back",result="unanswered"'] == "1.0"


def test_a_large_body_is_refused_before_it_is_there(app, start, tmp_path):
    # The body does not come, nor does the last chunk.
    assert app.get("/login", CALLER, "POST", None, Content_Length="36000000").status == 413
    chunks = b"1001\r\n" + 4097 * b"x"
    assert app.get("/login", CALLER, "POST", chunks, Transfer_Encoding="chunked").status == 413
    words = f"env -C {tmp_path} $PYTHON -m hypercorn --bind 127.0.0.1:$HTTP_PORT protect:app"
    row = Row("protect_http2", python("hypercorn"), words, is_required=PYPI_IS_REQUIRED)
    url = f"http://127.0.0.1:{start(row, app.server).http_port}/login"
    shown = "%{http_version} %{http_code} %{size_upload}"
    command = ["curl", "-so", "/dev/null", "-w", shown, "--http2-prior-knowledge", "-T", "-", "-X", "POST", url]
    version, status, uploaded = subprocess.check_output(command, input=bytes(36_000_000)).decode().split()
    assert [version, status] == ["2", "413"] and int(uploaded) < 1_000_000
    assert app.server("DBSIZE") == 0


def test_a_form_is_answered_whatever_its_letters(app):
    # The second is the largest form. Debian's FastAPI takes half a pair of UTF-16, which no key can hold.
    assert {*log_in(app, "\ud800", "\0")} <= {401, 422, 503 if IS_DEBIAN else 422}
    assert log_in(app, 64 * "\U0001f600", 256 * "\U0001f600") == {401: 1}
