"""The programs of docs/recipes and docs/budgets: they print what their pages show, and keep what the pages promise."""

import contextlib
import itertools
import os
import random
import subprocess
import sys
import textwrap
import types
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from applications import DEBIAN_NODE, NPM_LIBRARIES, Row, python
from packages import ROOT
from servers import Address, wait_for

DOCS = ROOT / "docs"
sys.path[:0] = [str(DOCS / "recipes"), str(DOCS / "budgets")]

import ban
import calendar_quota
import fairness
import fake
import gateway
import module_or_script
import shadow
import waiting

MILLISECOND, SECOND, MINUTE = 10**6, 10**9, 60 * 10**9


@pytest.fixture
def server(new_server, clock):
    return with_functions(new_server(environment=clock.environment))


def with_functions(server):
    for library in "budgets/reservation.lua", "recipes/calendar_quota.lua":
        server("FUNCTION LOAD REPLACE", (DOCS / library).read_text())
    return server


def connect(server, kind=redis.Redis):
    once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    return kind(port=server.port, socket_timeout=1, **once)


def output(program, server, version):
    """Runs a program of docs/ with this version of its library, and returns what it prints."""
    environment = {"PYTHON": sys.executable, **os.environ, **python("redis")[version](), "REDIS_PORT": str(server.port)}
    return subprocess.check_output([environment["PYTHON"], "-B", DOCS / program], env=environment, text=True)


# The output of programs that no page shows. The pages show that of the others.
PRINTED = {
    "recipes/fake.py": "[0, 2, 1, -1, 60]\n[0, 2, 0, -1, 120]\n[1, 2, 0, 60, 120]\n[0, 2, 0, -1, 120]\n",
    "recipes/calendar_quota.py": "2026-03-29 has 23 hours\n2026-10-25 has 25 hours\n2026-11-22 has 24 hours\n"
    "8 allowed [92, 992, 2]\n8 limited [92, 992, 2]\n-8 allowed [100, 1000, 10]\n1001 limited [100, 1000, 10]\n",
}
SHOWN = ["recipes/waiting.py", "recipes/ban.py", "recipes/shadow.py", "recipes/fairness.py", "budgets/gateway.py"]


@pytest.mark.parametrize("program", [*PRINTED, *SHOWN])
@pytest.mark.parametrize("version", python("redis"))
def test_a_program_prints_what_its_page_shows(new_server, clock, program, version):
    # The program of calendar quotas has the machine's clock.
    environment = {} if program == "recipes/calendar_quota.py" else clock.environment
    printed = output(program, with_functions(new_server(environment=environment)), version)
    page = (DOCS / f"{program.split('/')[0]}.md").read_text()
    assert printed == PRINTED.get(program, printed) != ""
    assert program in PRINTED or textwrap.indent(printed, "    ") in page


def test_a_guess_is_charged_before_it_is_checked_and_a_line_of_the_page_lifts_the_ban(server):
    class Guess(str):
        def __eq__(self, password):
            checked.append(self)
            return super().__eq__(password)

    checked, door = [], ban.Door(connect(server), "account")
    for _ in range(20):
        with contextlib.suppress(ban.KeptOut):
            assert not ban.log_in(door, "alice", Guess("guess"))
    assert len(checked) == 5
    # Guesses at an account that is named as an address ban no address. A restarted server has no scripts.
    server("SCRIPT FLUSH")
    ban.Door(connect(server), "address").attempt("alice")
    with pytest.raises(ban.KeptOut):
        ban.log_in(door, "alice", "correct horse")
    lift = "DEL attempts:{account:alice} banned:{account:alice} offences:{account:alice}"
    assert f"`{lift}`" in (DOCS / "recipes.md").read_text()
    server(lift)
    assert all(ban.log_in(door, "alice", "correct horse") for _ in range(20))
    with pytest.raises(ValueError, match="colon"):
        ban.Door(connect(server), "account:alice")
    # A right password counts even if its attempt cannot be given back.
    attempt = door.attempt
    door.attempt = lambda who: (attempt(who), server.kill())
    assert ban.log_in(door, "alice", "correct horse")


# In some of these, midnight comes twice (Havana) or is skipped (Santiago, Beirut), or a whole day is (Apia).
ZONES = {
    "Europe/Berlin": 2026, "America/Havana": 2026, "America/Santiago": 2025, "Asia/Beirut": 2026, "Pacific/Apia": 2011,
    "Australia/Lord_Howe": 2026, "Asia/Kathmandu": 2026, "UTC": 2026,
}


@pytest.mark.parametrize("name", ZONES)
def test_a_day_a_week_and_a_month_end_when_the_zone_says_so(name):
    zone, start = ZoneInfo(name), int(datetime(ZONES[name], 1, 1, 5, 17, tzinfo=ZoneInfo("UTC")).timestamp())
    for now in range(start, start + 2 * 366 * 86400, 5 * 3600):
        local, periods = datetime.fromtimestamp(now, zone), calendar_quota.periods(zone, now)
        assert [name for name, _ in periods] == [local.strftime(form) for form in ("%Y-%m-%d", "%G-W%V", "%Y-%m")]
        for place, (period, end) in enumerate(periods):
            assert end > now and calendar_quota.periods(zone, end - 1)[place] == (period, end), now
            assert calendar_quota.periods(zone, end)[place][0] != period, now


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


def test_turns_are_first_come_first_served_within_burst_and_rate(server, clock):
    # A token does not take a whole number of milliseconds.
    burst, count, period, longest = 4, 7, 100, 500
    queue = waiting.Queue(connect(server), "key", burst - 1, count, period, longest)
    chance, start, now, turns, refused = random.Random(2026), clock.now, 0, [], 0
    for step in range(3_000):
        # Calls come too often, and then too seldom.
        now += chance.randrange(10 if step % 400 < 200 else 60)
        clock.set(start + now * MILLISECOND)
        tokens = chance.choice([1, 1, 1, 1, burst])
        try:
            turns.append((now + queue.turn(tokens), now, tokens))
        except waiting.TooLong as error:
            assert 1 <= error.args[0] <= period * burst / count + 1
            refused += 1
    waits = [turn - now for turn, now, _ in turns]
    assert min(waits) == 0 and max(waits) <= longest and min(waits.count(0), len(waits) - waits.count(0), refused) > 100
    # Rounding up to a millisecond may put a later call's turn a millisecond before an earlier call's.
    assert all(first[0] <= second[0] + 1 for first, second in zip(turns, turns[1:]))
    turns.sort()
    for first, (begin, *_) in enumerate(turns):
        taken = 0
        for end, _, tokens in turns[first : first + 200]:
            taken += tokens
            assert taken <= burst + (end - begin + 1) * count / period, (begin, end)


def test_a_queue_or_a_shadow_of_wrong_numbers_or_names_is_refused_at_its_start():
    right = {"max_burst": 3, "count": 7, "period": 100, "longest": 500}
    for name, wrong in itertools.product(right, (-1, None, True, 1.5, "3")):
        with pytest.raises(ValueError, match=name):
            waiting.Queue(None, "key", **{**right, name: wrong})
    for tokens in 0, 5, -1, True, None, 1.5:
        with pytest.raises(ValueError, match="1 to 4 tokens"):
            waiting.Queue(None, "key", **right).turn(tokens)
    # The keys of the last two would be another limit's.
    for name, period in ("search", 60.0), ("search", True), ("search", "60"), ("search:alice", 60), ("shadow", 60):
        with pytest.raises(ValueError, match=name):
            shadow.Limit(None, name, (15, 30, period), enforced=True)


def test_without_a_server_a_shadow_counts_an_error_and_an_enforced_limit_raises_it(server):
    shadowed, enforced = (shadow.Limit(connect(server), "search", (15, 30, 60), enforced) for enforced in (False, True))
    server.kill()
    assert shadowed.allows("alice") and shadowed.counts == {"error": 1}
    # Another server may reply in another shape.
    shadowed.client = types.SimpleNamespace(execute_command=lambda *words: [])
    assert shadowed.allows("alice") and shadowed.counts == {"error": 2}
    with pytest.raises(redis.RedisError):
        enforced.allows("alice")


def taken(server, clock):
    """Returns how many of alice's tokens are taken."""
    return (int(server("GET {gate:acme}:alice:tokens") or clock.now) - clock.now) * 20_000 // MINUTE


class Losing(redis.Redis):
    """Loses all answers but each of this number."""

    calls, losses = 0, 1

    def execute_command(self, *words):
        answer = super().execute_command(*words)
        self.calls += 1
        if self.calls % self.losses:
            raise redis.TimeoutError
        return answer


def test_a_call_that_fails_is_charged_once_or_not_at_all_and_frees_its_place(server, clock, monkeypatch):
    client, pause = connect(server, Losing), lambda: None

    def ask(user, estimate, losses=1, fails=None):
        def model():
            if fails:
                raise fails
            return "an answer", 9_000

        client.calls, client.losses = 0, losses
        try:
            how = gateway.ask(client, "acme", user, estimate, model)
        except (GeneratorExit, OSError, redis.RedisError) as error:
            how = redis.ResponseError if isinstance(error, redis.ResponseError) else type(error)
        return how, client.calls

    monkeypatch.setattr(gateway, "time", types.SimpleNamespace(sleep=lambda seconds: pause()))
    assert ask("alice", 3_000, fails=ConnectionRefusedError()) == (ConnectionRefusedError, 2)
    assert taken(server, clock) == 0
    # A caller that hangs up before the answer's end has used the model.
    assert ask("alice", 3_000, fails=BrokenPipeError()) == (BrokenPipeError, 2)
    assert ask("alice", 3_000, fails=GeneratorExit()) == (GeneratorExit, 2)
    # The first two answers of each call are lost, and then all three.
    assert ask("alice", 2_000, losses=3) == ("an answer", 6)
    assert ask("alice", 2_000, losses=99) == (redis.TimeoutError, 6)
    # The second try is refused at maxmemory, and then all are.
    pause = lambda: server("CONFIG SET maxmemory 1")
    assert ask("alice", 2_000, losses=2) == (redis.TimeoutError, 2)
    assert ask("alice", 2_000) == (redis.ResponseError, 0)
    assert taken(server, clock) == 15_000
    server("CONFIG SET maxmemory 0")
    # The server stands still, and carries out what it has received when the program has given up.
    server.signal("STOP")
    pause = lambda: None
    assert ask("bob", 2_000) == (redis.TimeoutError, 0)
    server.signal("CONT")
    wait_for("its calls are carried out", lambda: server("INFO clients")["connected_clients"] <= 2)
    clock.set(clock.now + MINUTE)
    assert server("FCALL_RO reservations 1 {gate:acme}:calls") == 0


@pytest.mark.parametrize("wrong", [True, False, None, -1, 1.5, "5", 10**15, float("nan")])
def test_tokens_that_are_no_number_leave_no_place_taken(server, clock, wrong):
    client = connect(server)
    with pytest.raises(ValueError, match="estimate"):
        gateway.ask(client, "acme", "alice", wrong, lambda: ("an answer", 1))
    assert server("DBSIZE") == 0
    # The answer is there all the same. Its call pays the estimate.
    assert gateway.ask(client, "acme", "alice", 5_000, lambda: ("an answer", wrong)) == "an answer"
    assert server("FCALL_RO reservations 1 {gate:acme}:calls") == 0
    assert taken(server, clock) == 5_000


# A user may choose any name. A hash tag that is empty is none, and a call on such keys gets CROSSSLOT.
NAMES = ["", "}", "}x", "{", "{}", "a}b", "a:b", "a\nb", "acme}:bob", "acme", "bob}", "\ud800", "\udfff", "?", "\ufffd"]


def test_each_name_has_keys_of_its_own_on_one_node_of_a_cluster(new_server):
    node = with_functions(new_server("--cluster-enabled", "yes"))
    node("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(node("CLUSTER INFO")))
    client = connect(node)
    plan, pool = calendar_quota.Plan(client, ZoneInfo("UTC")), fairness.Pool(client)
    limit = shadow.Limit(client, "search", (15, 30, 86_400), enforced=True)
    for name in NAMES:
        ban.Door(client, "account").attempt(name)
        plan.throttle(*plan.of(name))
        assert pool.admits(name) == [] and limit.allows(name)
        assert waiting.Queue(client, f"{{queue}}:{name}", 1, 1, 86_400_000, 0).turn() == 0
        assert module_or_script.Limiter(client).throttle(f"{{limit}}:{name}", 1, 1, 86_400)[0] == 0
        for user in NAMES:
            with gateway.admitted(client, name, user, 5_000):
                pass
    # These keys last for seconds at least.
    own = ["attempts:*", "{pool}:tenant:*", "search:*", "{queue}:*", "{limit}:*"]
    of_each = {**dict.fromkeys(own, 1), "{plan:*:20*": 2, "{gate:*:tokens": 1 + len(NAMES)}
    for keys, number in of_each.items():
        assert len(client.keys(keys)) == number * len(NAMES), keys


LIMITERS = {"python": None, "node": NPM_LIBRARIES, "node-debian": DEBIAN_NODE}


@pytest.mark.parametrize("kind", LIMITERS)
def test_a_limiter_goes_on_where_it_was_when_the_server_loses_the_module_and_gets_it_back(new_server, start, kind):
    having, lacking = new_server(), new_server(module=False)
    follow(lacking, having)
    address, left = Address(having), iter(range(29, -1, -1))
    # 30 tokens, none of which comes back within the test; then a quota that never decides.
    words = "user123", 29, 1, 86400, 1, 999, 1000, 86400
    if kind == "python":
        limiter = module_or_script.Limiter(connect(address))
    else:
        row = Row("module_or_script", LIMITERS[kind], "node $TESTS/module_or_script.js", http=False)
        process = start(row, address.port).process

    def ask():
        """Returns the first three integers of the reply and what decided, or another text after an error."""
        if kind == "python":
            with contextlib.suppress(redis.RedisError):
                return [*map(str, limiter.throttle(*words)[:3]), "module" if limiter.module else "script"]
            return []
        print(*words, file=process.stdin, flush=True)
        return process.stdout.readline().split()

    def take(times, *decides):
        for _ in range(times):
            # A client that has lost its connection may need a moment for another one.
            answer = wait_for("an answer", lambda: (answer := ask())[3:] in (["module"], ["script"]) and answer)
            assert answer[:3] == ["0", "30", str(next(left))] and answer[3] in decides

    def fail_over(old, new):
        offset = lambda server: server("INFO replication")["master_repl_offset"]
        wait_for("it has all writes", lambda: offset(new) == offset(old))
        new("REPLICAOF NO ONE")
        old("REPLICAOF 127.0.0.1", new.port)
        address.lead_to(new)

    take(10, "module")
    # The connections to the old server end, which the client may not know yet.
    fail_over(having, lacking)
    having("CLIENT KILL TYPE normal")
    take(1, "module", "script")
    take(9, "script")
    follow(having, lacking)
    # The client learns it from the error of a replica.
    fail_over(lacking, having)
    take(1, "module", "script")
    take(9, "module")
    is_limited = lambda: ask()[:3] == ["1", "30", "0"]
    assert is_limited()
    having.signal("STOP")
    assert not is_limited()
    having.signal("CONT")
    wait_for("an answer after a silence of the server", is_limited)
    address.silence()
    wait_for("another connection after a silent one", is_limited)


def follow(replica, primary):
    replica("REPLICAOF 127.0.0.1", primary.port)
    wait_for("it follows", lambda: replica("INFO replication").get("master_link_status") == "up")
