"""The programs of docs/recipes and docs/budgets: they print what their pages show, and keep what the pages promise."""

import contextlib
import re
import sys
import textwrap
import time
from datetime import datetime
from importlib import import_module as recipe
from unittest.mock import MagicMock
from zoneinfo import ZoneInfo

import pytest
import redis

from applications import Row, on, python
from packages import ROOT
from servers import Address, wait_for

DOCS = ROOT / "docs"
PAGES = (DOCS / "recipes.md").read_text() + (DOCS / "budgets.md").read_text()
PROGRAMS = sorted([*DOCS.glob("recipes/*.py"), *DOCS.glob("budgets/*.py")])
# Each test imports its own recipe, so a recipe that fails to load fails only its own tests.
sys.path[:0] = [str(DOCS / "recipes"), str(DOCS / "budgets")]


@pytest.fixture
def server(new_server, clock):
    """A node of a cluster with the functions, so that a call whose keys do not share a hash tag is an error."""
    server = new_server("--cluster-enabled", "yes", environment=clock.environment)
    server("CLUSTER ADDSLOTSRANGE 0 16383")
    # A node that has just started waits for two seconds. When a calendar's day ends depends on the program's clock.
    clock.set(time.time_ns())
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(server("CLUSTER INFO")))
    for library in "budgets/reservation.lua", "recipes/calendar_quota.lua":
        server("FUNCTION LOAD REPLACE", (DOCS / library).read_text())
    return server


def connect(server):
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    return redis.Redis(port=server.port, socket_timeout=1, **once)


@on([Row(program.stem, python("redis"), f"$PYTHON {program}") for program in PROGRAMS], "program")
def test_a_program_prints_what_its_page_shows(program, server):
    printed = program.output(server.port)
    assert printed and (textwrap.indent(printed, "    ") in PAGES) == (program.row.name != "calendar_quota")


def test_a_guess_is_charged_before_it_is_checked_and_a_command_on_the_page_lifts_the_ban(server):
    ban, guess = recipe("ban"), MagicMock()
    door = ban.Door(connect(server), "account")
    guess.__eq__.return_value = False
    for _ in range(20):
        with contextlib.suppress(ban.KeptOut):
            assert not ban.log_in(door, "alice", guess)
    assert guess.__eq__.call_count == 5
    server(re.search("`(DEL banned:.*?)`", PAGES, re.S)[1])
    assert ban.log_in(door, "alice", "correct horse")
    # A right password is accepted even if the attempt cannot be refunded.
    door.attempt = lambda who: server.kill()
    assert ban.log_in(door, "alice", "correct horse")


def test_right_passwords_start_no_ban_however_many_arrive_at_once(server):
    ban = recipe("ban")
    door = ban.Door(connect(server), "account")
    for _ in range(5):
        door.attempt("alice")
    with pytest.raises(ban.KeptOut):
        door.attempt("alice")
    # One wrong password among them starts no ban either.
    door.failed("alice")
    for _ in range(4):
        door.succeeded("alice")
    assert ban.log_in(door, "alice", "correct horse")


def test_a_day_a_week_and_a_month_end_when_the_zone_says_so():
    periods = recipe("calendar_quota").periods
    first, last = (int(datetime(year, 1, 1, 5, 17).timestamp()) for year in (2011, 2013))
    # In 2011, midnight comes twice in Havana and is skipped in Beirut, and Apia skips a whole day.
    for zone in map(ZoneInfo, ("Europe/Berlin", "America/Havana", "Asia/Beirut", "Pacific/Apia", "UTC")):
        at = lambda moment, form: datetime.fromtimestamp(moment, zone).strftime(form)
        for now in range(first, last, 5 * 3600):
            for form, (period, end) in zip(("%Y-%m-%d", "%G-W%V", "%Y-%m"), periods(zone, now)):
                assert now < end and at(now, form) == at(end - 1, form) == period != at(end, form), (zone, now)


def test_a_queue_gives_each_call_the_earliest_turn_that_burst_and_rate_allow(server, clock):
    # Two at once, three a second, and no wait longer than a second. A third of a second is not a whole number of ms.
    waiting, turns = recipe("waiting"), []
    queue = waiting.Queue(connect(server), "key", 1, 3, 1_000, 1_000)
    for pause, tokens in (0, 1), (0, 1), (0, 1), (0, 2), (0, 1), (334, 1), (5_000, 2), (0, 2), (0, 2):
        clock.set(clock.now + pause * 10**6)
        try:
            turns.append(queue.turn(tokens))
        except waiting.TooLong as error:
            turns.append(f"ask after {error}")
    assert turns == [0, 0, 334, 1_000, "ask after 334", 1_000, 0, 668, "ask after 334"]


LOST, ESTIMATE = "broken off", 3_000


@pytest.mark.parametrize("used, fate, raised, paid", [
    # First, two replies to each function call are lost, and then all three.
    (9_000, [LOST, LOST, None, LOST, LOST], None, 9_000),
    (9_000, [LOST] * 6, redis.ConnectionError, 0),
    (0, [], ConnectionRefusedError, 0),
    # The model has been used, even if the caller hangs up.
    (0, [], BrokenPipeError, ESTIMATE),
    (0, [], GeneratorExit, ESTIMATE),
    (-1, [], None, ESTIMATE),
])
def test_a_call_pays_its_use_or_its_estimate_and_frees_its_slot(server, monkeypatch, used, fate, raised, paid):
    gateway = recipe("gateway")
    monkeypatch.setattr(gateway.time, "sleep", lambda seconds: None)
    address, model = Address(server), MagicMock(side_effect=raised, return_value=("an answer", used))
    address.fates("FCALL", *fate)
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        # In the keys, the names have no brace and no colon.
        assert gateway.ask(connect(address), "}", "a:b", ESTIMATE, model) == "an answer"
    assert server("CL.LOOK {gate:%7D}:a%3Ab:tokens 19999 20000 60")[2] == 20_000 - paid
    assert server("FCALL_RO reservations 1 {gate:%7D}:calls") == 0


def test_the_keys_of_any_name_are_on_one_node_of_a_cluster(server):
    """A call whose keys have different hash tags, or empty ones, gets CROSSSLOT."""
    ban, plan = recipe("ban"), recipe("calendar_quota").Plan(connect(server), ZoneInfo("UTC"))
    for name in "", "}", "\ud800":
        assert ban.log_in(ban.Door(plan.client, "account"), name, "correct horse")
        assert plan.throttle(*plan.of(name))[0] == 0
