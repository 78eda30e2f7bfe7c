"""The programs of docs/recipes and docs/budgets: they print what their pages show, and keep what the pages promise."""

import contextlib
import json
import random
import re
import sys
import textwrap
import time
from datetime import datetime
from unittest.mock import MagicMock
from zoneinfo import ZoneInfo

import pytest
import redis

from applications import IOREDIS, NODE_REDIS, Row, on, python
from packages import ROOT
from servers import Address, fates, wait_for

DOCS = ROOT / "docs"
PAGES = (DOCS / "recipes.md").read_text() + (DOCS / "budgets.md").read_text()
sys.path[:0] = [str(DOCS / "recipes"), str(DOCS / "budgets")]

import ban
import calendar_quota
import fairness
import fake
import gateway
import module_or_script
import shadow
import waiting

MILLISECOND, SECOND = 10**6, 10**9
LOST, ESTIMATE, NO_NUMBERS = "broken off", 3_000, (-1, None, True, 1.5, "5")


@pytest.fixture
def server(new_server, clock):
    """A node of a cluster with the functions, so that a call whose keys have not one hash tag is an error."""
    server = new_server("--cluster-enabled", "yes", environment=clock.environment)
    server("CLUSTER ADDSLOTSRANGE 0 16383")
    # A node that has just started waits for two seconds.
    clock.set(clock.now + 3 * SECOND)
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(server("CLUSTER INFO")))
    for library in "budgets/reservation.lua", "recipes/calendar_quota.lua":
        server("FUNCTION LOAD REPLACE", (DOCS / library).read_text())
    return server


def connect(server):
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    return redis.Redis(port=server.port, socket_timeout=1, **once)


SHOWN = "recipes/waiting.py", "recipes/ban.py", "recipes/shadow.py", "recipes/fairness.py", "budgets/gateway.py"
NOT_SHOWN = "recipes/fake.py", "recipes/calendar_quota.py", "recipes/module_or_script.py"


@on([Row(name, python("redis"), f"$PYTHON ../{name}") for name in SHOWN + NOT_SHOWN], fixture="program")
def test_a_program_prints_what_its_page_shows(program, server, clock):
    # A calendar's day ends by the clock of the program.
    clock.set(time.time_ns())
    printed = program.output(server.port)
    assert printed and (textwrap.indent(printed, "    ") in PAGES) == (program.row.name in SHOWN)


def test_a_guess_is_charged_before_it_is_checked_and_a_line_of_the_page_lifts_the_ban(server):
    door, guess = ban.Door(connect(server), "account"), MagicMock()
    guess.__eq__.return_value = False
    for _ in range(20):
        with contextlib.suppress(ban.KeptOut):
            assert not ban.log_in(door, "alice", guess)
    assert guess.__eq__.call_count == 5
    with pytest.raises(ban.KeptOut):
        ban.log_in(door, "alice", "correct horse")
    server(re.search("`(DEL attempts:.*)` lifts a ban", PAGES)[1])
    assert all(ban.log_in(door, "alice", "correct horse") for _ in range(20))
    # A right password counts even if its attempt cannot be given back.
    door.attempt = lambda who: server.kill()
    assert ban.log_in(door, "alice", "correct horse")


# In 2011, midnight comes twice in some of these (Havana) or is skipped (Santiago, Beirut), or a whole day is (Apia).
@pytest.mark.parametrize("name", [
    "Europe/Berlin", "America/Havana", "America/Santiago", "Asia/Beirut", "Pacific/Apia", "Australia/Lord_Howe", "UTC",
])
def test_a_day_a_week_and_a_month_end_when_the_zone_says_so(name):
    zone, start = ZoneInfo(name), int(datetime(2011, 1, 1, 5, 17).timestamp())
    for now in range(start, start + 2 * 366 * 86400, 5 * 3600):
        for form, (period, end) in zip(("%Y-%m-%d", "%G-W%V", "%Y-%m"), calendar_quota.periods(zone, now)):
            at = lambda moment: datetime.fromtimestamp(moment, zone).strftime(form)
            assert now < end and at(now) == at(end - 1) == period != at(end), now


def test_the_fake_decides_as_the_module_does_and_refuses_what_it_refuses(server, clock):
    chance, client, limited = random.Random(2026), fake.Fake(lambda: clock.now), 0
    # Most numbers are small, so that limiters run empty.
    number = lambda most: int(most ** chance.random() ** 2)
    for key in range(300):
        limit, quota = number(2**31), (number(9_000_000), number(2**21))
        for _ in range(25 if limit * quota[1] < quota[0] * 7 * SECOND else 0):
            quantity = chance.choice([0, -number(2**31), number(2**31), limit, 1, 2, 3])
            call = "CL.THROTTLE", key, limit - 1, *quota, quantity
            reply = server(*call)
            assert client.execute_command(*call) == reply, call
            limited += reply[0]
            clock.set(clock.now + chance.choice([0, 0, number(2**31) * 1_000, min(max(reply[3], 0), 2**20) * SECOND]))
    assert limited > 500
    right = {"max_burst": 15, "count": 30, "period": 60, "quantity": 1}
    small = [("max_burst", -2), ("count", 0), ("period", 0), ("count", 60 * SECOND + 1), ("max_burst", 2**62)]
    for name, wrong in [*small, *((name, wrong) for name in right for wrong in (None, 1.5, "x", 2**63))]:
        numbers = {**right, name: wrong}.values()
        with pytest.raises(AssertionError, match=name):
            client.execute_command("CL.THROTTLE", "key", *numbers)
        with pytest.raises((redis.DataError, redis.ResponseError)):
            server("CL.THROTTLE key", *numbers)


def test_a_queue_gives_each_call_the_first_turn_that_burst_and_rate_leave(server, clock):
    # A token does not take a whole number of milliseconds.
    burst, count, period, longest = 4, 7, 100, 500
    queue = waiting.Queue(connect(server), "key", burst - 1, count, period, longest)
    # All tokens are back at `full`.
    chance, full, turns = random.Random(2026), 0, []
    for number in range(3_000):
        # Calls come too often, and then too seldom.
        clock.set(clock.now + chance.randrange(10 if number % 400 < 200 else 60) * MILLISECOND)
        tokens = chance.choice([1, 1, 1, 1, burst])
        missing = max(full - clock.now, 0) / MILLISECOND + tokens * period / count
        wait = max(missing - burst * period / count, 0)
        try:
            turns.append(queue.turn(tokens))
            assert abs(turns[-1] - wait) < 2
            full = clock.now + missing * MILLISECOND
        except waiting.TooLong as error:
            assert abs(error.args[0] - (wait - longest)) < 2
    assert max(turns) <= longest and min(turns.count(0), len(turns) - turns.count(0), 3_000 - len(turns)) > 100


def test_a_wrong_number_or_name_is_refused_before_the_first_call():
    numbers, quota = {"max_burst": 3, "count": 7, "period": 100, "longest": 500}, (15, 30, 60)
    turn = lambda client, wrong: waiting.Queue(client, "key", **numbers).turn(wrong)
    refused = [
        *((name, waiting.Queue, "key", *{**numbers, name: wrong}.values()) for name in numbers for wrong in NO_NUMBERS),
        *(("1 to 4 tokens", turn, wrong) for wrong in (0, 5, *NO_NUMBERS)),
        *(("estimate", gateway.ask, "acme", "alice", wrong, None) for wrong in NO_NUMBERS),
        *(("search", shadow.Limit, "search", (15, 30, wrong), True) for wrong in (60.0, True, "60")),
        # The keys would be another limit's.
        *((name, shadow.Limit, name, quota, True) for name in ("search:alice", "shadow")),
        ("colon", ban.Door, "account:alice"),
    ]
    for error, call, *words in refused:
        with pytest.raises(ValueError, match=error):
            call(None, *words)


def test_a_shadow_counts_an_error_and_an_enforced_limit_raises_it(server):
    server.kill()
    # Another server may reply in another shape.
    for client in connect(server), MagicMock(execute_command=lambda *words: []):
        shadowed, enforced = (shadow.Limit(client, "search", (15, 30, 60), enforced) for enforced in (False, True))
        assert shadowed.allows("alice") and shadowed.counts == {"error": 1}
        with pytest.raises((redis.RedisError, IndexError)):
            enforced.allows("alice")


@pytest.mark.parametrize("used, fate, memory, ends, paid", [
    # The first two answers of each call to Redis are lost, and then all three.
    (9_000, [LOST, LOST, None, LOST, LOST], 0, "an answer", 9_000),
    (9_000, [LOST] * 6, 0, redis.ConnectionError, 0),
    # The second try is refused at maxmemory.
    (9_000, [LOST], 1, redis.ConnectionError, 0),
    (ConnectionRefusedError, [], 0, ConnectionRefusedError, 0),
    # A caller that hangs up before the answer's end has used the model.
    (BrokenPipeError, [], 0, BrokenPipeError, ESTIMATE),
    (GeneratorExit, [], 0, GeneratorExit, ESTIMATE),
    *((wrong, [], 0, "an answer", ESTIMATE) for wrong in (*NO_NUMBERS, False, 10**15, float("nan"))),
])
def test_a_call_pays_its_use_or_its_estimate_and_frees_its_place(server, monkeypatch, used, fate, memory, ends, paid):
    model = MagicMock(side_effect=used if isinstance(used, type) else None, return_value=("an answer", used))
    address = Address(server)
    address.filter = fates("FCALL", *fate)
    monkeypatch.setattr(gateway.time, "sleep", lambda seconds: server("CONFIG SET maxmemory", memory))
    try:
        assert gateway.ask(connect(address), "acme", "alice", ESTIMATE, model) == ends
    except (GeneratorExit, OSError, redis.RedisError) as error:
        assert type(error) is ends
    assert server("CL.LOOK {gate:acme}:alice:tokens 19999 20000 60")[2] == 20_000 - paid
    assert server("FCALL_RO reservations 1 {gate:acme}:calls") == 0


def test_each_name_has_keys_of_its_own_on_one_node_of_a_cluster(server):
    # A user may choose any name. A hash tag that is empty is none, and a call on such keys gets CROSSSLOT.
    names = "", "}", "{", "{}", "a}b", "a:b", "a\nb", "acme}:bob", "acme", "bob}", "\ud800", "\udfff", "?", "\ufffd"
    client, answer = connect(server), lambda: ("an answer", 5_000)
    plan = calendar_quota.Plan(client, ZoneInfo("UTC"))
    calls = {
        "attempts:*": ban.Door(client, "account").attempt,
        "{plan:*}:*-*-*": lambda name: plan.throttle(*plan.of(name)),
        "{pool}:tenant:*": fairness.Pool(client).admits,
        "search:*": shadow.Limit(client, "search", (15, 30, 60), enforced=True).allows,
        "{queue}:*": lambda name: waiting.Queue(client, f"{{queue}}:{name}", 1, 1, 1, 0).turn(),
        "{limit}:*": lambda name: module_or_script.Limiter(client).throttle(f"{{limit}}:{name}", 1, 1, 1),
        "{gate:*}:tokens": lambda name: [gateway.ask(client, name, user, 5_000, answer) for user in names],
    }
    for keys, call in calls.items():
        for name in names:
            call(name)
        assert len(client.keys(keys)) == len(names), keys
    assert len(client.keys("{gate:*}:*:tokens")) == len(names) ** 2


@pytest.mark.parametrize("libraries", [None, f"{NODE_REDIS} && {IOREDIS}"], ids=["python", "node"])
def test_a_limiter_goes_on_where_it_was_when_the_server_loses_the_module_and_gets_it_back(new_server, start, libraries):
    having, lacking = new_server(), new_server(module=False)
    # 30 tokens, none of which comes back within the test; then a quota that never decides.
    address, words, left = Address(having), "user123 29 1 86400 1 999 1000 86400", iter(range(29, -1, -1))
    if libraries:
        row = Row("module_or_script", libraries, f"node $TESTS/module_or_script.js {words}", http=False)
        process = start(row, address.port).process
    else:
        limiter = module_or_script.Limiter(connect(address))

    def ask():
        """Returns the first three integers of the reply and whether the module decided, or None after an error."""
        if libraries:
            print(file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())
        with contextlib.suppress(redis.RedisError):
            return [*limiter.throttle(*words.split())[:3], limiter.module]

    for old, new in (lacking, having), (having, lacking), (lacking, having):
        new("REPLICAOF NO ONE")
        # The limiter is full at first.
        new("SET user123", old("GET user123") or 10**18)
        old("REPLICAOF 127.0.0.1 1")
        address.lead_to(new)
        # The client learns of a failover from the end of its connection, or from the error of a replica.
        if new is lacking:
            old("CLIENT KILL TYPE normal")
        for _ in range(10):
            *answer, is_by_module = wait_for("an answer", ask)
            assert (answer, bool(is_by_module)) == ([0, 30, next(left)], new is having)
    address.silence()
    assert wait_for("another connection after a silent one", ask) == [1, 30, 0, True]
