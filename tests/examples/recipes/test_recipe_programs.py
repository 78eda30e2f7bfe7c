"""Tests of the programs in docs/recipes and docs/budgets: what they print, and what their pages promise."""

import asyncio
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
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry

from applications import Row, on, python
from packages import ROOT
from servers import Address, wait_for

DOCS = ROOT / "docs"
PAGES = (DOCS / "recipes.md").read_text() + (DOCS / "budgets.md").read_text()
PROGRAMS = sorted([*DOCS.glob("recipes/*.py"), *DOCS.glob("budgets/*.py")])
# Tests import the programs from these folders. Each test imports only what it needs, so a program that fails to load
# fails only its own tests.
sys.path[:0] = [str(DOCS / "recipes"), str(DOCS / "budgets")]


def wait_until_up(server, clock):
    # Move the server's clock: a node that has just started waits two seconds before it reports that the cluster is up.
    def is_up():
        clock.set(time.time_ns())
        return "cluster_state:ok" in str(server("CLUSTER INFO"))

    wait_for("the cluster is up", is_up)


@pytest.fixture
def server(new_server, clock):
    """A cluster node with the functions. Unlike a single server, a node refuses a call whose keys share no hash tag."""
    server = new_server("--cluster-enabled", "yes", environment=clock.environment)
    server("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_until_up(server, clock)
    for library in "budgets/reservation.lua", "recipes/calendar_quota.lua":
        server("FUNCTION LOAD REPLACE", (DOCS / library).read_text())
    return server


def connect(server):
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    return redis.Redis(port=server.port, socket_timeout=1, **once)


@on([Row(program.stem, python("redis"), f"$PYTHON {program}") for program in PROGRAMS], "program")
def test_a_program_prints_what_its_page_shows(program, server):
    printed = program.output(server, path="?socket_timeout=60")
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
    # If the server crashes during the attempt, a right password is accepted, although the attempt cannot be refunded.
    door.attempt = lambda who: server.kill()
    assert ban.log_in(door, "alice", "correct horse")


def test_right_passwords_start_no_ban_however_many_arrive_at_once(server):
    ban = recipe("ban")
    door = ban.Door(connect(server), "account")
    for _ in range(5):
        door.attempt("alice")
    with pytest.raises(ban.KeptOut):
        door.attempt("alice")
    # One wrong password among the right ones does not start a ban either.
    door.failed("alice")
    for _ in range(4):
        door.succeeded("alice")
    assert ban.log_in(door, "alice", "correct horse")


def test_a_day_a_week_and_a_month_end_when_the_zone_says_so():
    periods = recipe("calendar_quota").periods
    first, last = (int(datetime(year, 1, 1, 5, 17).timestamp()) for year in (2011, 2013))
    # In 2011, midnight came twice in Havana and was skipped in Beirut, and Apia skipped a whole day.
    for zone in map(ZoneInfo, ("Europe/Berlin", "America/Havana", "Asia/Beirut", "Pacific/Apia", "UTC")):
        at = lambda moment, form: datetime.fromtimestamp(moment, zone).strftime(form)
        for now in range(first, last, 5 * 3600):
            for form, (period, end) in zip(("%Y-%m-%d", "%G-W%V", "%Y-%m"), periods(zone, now)):
                assert now < end and at(now, form) == at(end - 1, form) == period != at(end, form), (zone, now)


# The longest wait need not be a multiple of the time per token: in 1.1 seconds, 3.3 tokens come back.
@pytest.mark.parametrize("longest, last", [(1_000, 1_000), (1_100, 1_001)])
def test_a_queue_gives_each_call_the_earliest_turn_that_burst_and_rate_allow(server, clock, longest, last):
    # The queue allows two calls at once and three a second. A third of a second is not a whole number of milliseconds.
    waiting, turns = recipe("waiting"), []
    queue = waiting.Queue(connect(server), "key", 1, 3, 1_000, longest)
    for pause, tokens in (0, 1), (0, 1), (0, 1), (0, 2), (0, 1), (334, 1), (5_000, 2), (0, 2), (0, 2):
        clock.set(clock.now + pause * 10**6)
        try:
            turns.append(queue.turn(tokens))
        except waiting.TooLong as error:
            turns.append(f"ask after {error}")
    assert turns == [0, 0, 334, last, "ask after 334", 1_000, 0, 668, "ask after 334"]


LOST, ESTIMATE, TOKENS = "broken off", 3_000, "{gate:%7D}:a%3Ab:tokens 19999 20000 60"


def grant(server):
    """Creates a user with exactly the permissions that gateway.py needs."""
    header = (DOCS / "budgets/reservation.lua").read_text().split("\n\n")[1]
    permissions = re.findall(r"\+[a-z_.]+", header) + re.findall(r"\+function\|load", PAGES)
    server("ACL SETUSER app reset on nopass ~*", *permissions)


@pytest.fixture
def gateway(server):
    """Returns a function that passes gateway.py and a client to another function: gateway(function, address)."""
    grant(server)

    def run(function, address):
        async def call():
            url = f"redis://app:x@127.0.0.1:{address.port}?socket_timeout=60"
            async with AsyncRedis.from_url(url, retry=Retry(redis.backoff.NoBackoff(), 0)) as client:
                try:
                    return await function(recipe("gateway"), client)
                finally:
                    await asyncio.gather(*recipe("gateway").SETTLING)

        return asyncio.run(call())

    return run


def charged(server):
    assert server("FCALL_RO reservations 1 {gate:%7D}:calls") == 0
    return 20_000 - server(f"CL.LOOK {TOKENS}")[2]


async def answer(gateway, client, used, raised=None, read=2):
    """Reads this many parts of an answer. The names contain a brace and a colon, which must not appear in the keys."""

    async def model():
        if raised is ConnectionRefusedError:
            raise raised
        for part in used:
            yield "part", part
        if raised:
            raise raised

    async with contextlib.aclosing(gateway.ask(client, "}", "a:b", ESTIMATE, model)) as parts:
        return [await anext(parts) for _ in range(read)]


@pytest.mark.parametrize("used, raised, read, paid", [
    ([2_000, 9_000], None, 2, 9_000),
    # The reader hangs up after the first part of the answer.
    ([2_000, 9_000], None, 1, 2_000),
    # The model's connection breaks after a part of the answer, breaks before the first part, or is refused.
    ([2_000], BrokenPipeError, 2, 2_000),
    ([], BrokenPipeError, 1, ESTIMATE),
    ([], ConnectionRefusedError, 1, 0),
    # The program sets `used` to a number that is not valid.
    ([2_000, -1], None, 2, ESTIMATE),
])
def test_a_stream_pays_what_it_has_used_when_it_ends_or_breaks(server, gateway, used, raised, read, paid):
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        gateway(lambda program, client: answer(program, client, used, raised, read), Address(server))
    assert charged(server) == paid


@pytest.mark.parametrize("fates, is_unavailable, paid", [
    # A call is sent up to three times. In the first case, two replies to the reservation and two to the settlement are
    # lost. In the second, all replies to the reservation are lost, and in the third, all replies to the settlement.
    ([LOST, LOST, None, LOST, LOST], False, 9_000),
    ([LOST] * 3, True, 0),
    ([None] + [LOST] * 3, False, 9_000),
])
def test_a_lost_reply_is_charged_once_and_an_outage_is_a_clear_error(server, gateway, fates, is_unavailable, paid):
    address = Address(server)
    address.fates("FCALL", *fates)
    with pytest.raises(recipe("gateway").Unavailable) if is_unavailable else contextlib.nullcontext():
        gateway(lambda program, client: answer(program, client, [9_000, 9_000]), address)
    assert charged(server) == paid


def test_without_redis_a_call_is_refused_and_an_empty_server_gets_the_functions_again(server, clock, gateway):
    async def calls(program, client):
        server.kill()
        for _ in range(2):
            with pytest.raises(program.Unavailable):
                await answer(program, client, [1, 2])
        server.restart()
        wait_until_up(server, clock)
        grant(server)
        await answer(program, client, [1, 2])
        # If the server loses its functions during a call, the call is settled nevertheless.
        async with program.admitted(client, "}", "a:b", ESTIMATE) as call:
            server("FUNCTION FLUSH")
            call.used = 40

    gateway(calls, Address(server))
    assert charged(server) == 42


@pytest.mark.parametrize("fate, paid", [(None, 1_000), ("lost", 0)])
def test_a_call_whose_task_is_cancelled_is_settled_even_if_it_still_waits_for_its_slot(server, gateway, fate, paid):
    """After a client has hung up, Starlette cancels its task repeatedly."""
    address = Address(server)
    address.fates("FCALL", fate)

    async def cancel(program, client):
        is_running = asyncio.Event()

        async def call():
            async with program.admitted(client, "}", "a:b", ESTIMATE) as call:
                call.used = 1_000
                is_running.set()
                await asyncio.sleep(3600)

        task = asyncio.create_task(call())
        # Unless the reply is lost, also wait until the program has read it.
        while not (server("FCALL_RO reservations 1 {gate:%7D}:calls") and (fate or is_running.is_set())):
            await asyncio.sleep(0.01)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)

    gateway(cancel, address)
    assert charged(server) == paid


def test_a_long_call_keeps_its_slot(server, clock, gateway, monkeypatch):
    monkeypatch.setattr(recipe("gateway"), "LEASE", 30)

    async def call(program, client):
        async with program.admitted(client, "}", "a:b", ESTIMATE):
            ends = lambda: server("ZRANGE {gate:%7D}:calls 0 -1 WITHSCORES")
            for _ in range(5):
                before = ends()
                clock.set(clock.now + 20 * 10**6)
                while ends() == before:
                    await asyncio.sleep(0.01)
            assert server("FCALL_RO reservations 1 {gate:%7D}:calls") == 1

    gateway(call, Address(server))


def test_the_keys_of_any_name_are_on_one_node_of_a_cluster(server):
    """A call whose keys have different or empty hash tags gets a CROSSSLOT error."""
    ban, plan = recipe("ban"), recipe("calendar_quota").Plan(connect(server), ZoneInfo("UTC"))
    for name in "", "}", "\ud800":
        assert ban.log_in(ban.Door(plan.client, "account"), name, "correct horse")
        assert plan.throttle(*plan.of(name))[0] == 0
