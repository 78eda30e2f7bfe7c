"""Tests of the storages in programs that use `limits` directly: URIs, options, keys, times and failures."""

import asyncio
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from signal import SIGCONT, SIGSTOP
from threading import Barrier

import pytest
from limits import errors, parse
from limits.storage import RedisStorage, storage_from_string
from limits.strategies import STRATEGIES, FixedWindowRateLimiter, MovingWindowRateLimiter
from redis.exceptions import ResponseError

from packages import ROOT
from redis_cell.limits import Unanswered
from servers import WITH_THE_TEST, Address, free_port, wait_for

LIMIT = parse("3/day")
HAS_VALKEY = find_spec("valkey") and "valkey" in RedisStorage.STORAGE_SCHEME
on_both = pytest.mark.parametrize("cell", ["redis-cell", *(["valkey-cell"] if HAS_VALKEY else [])])
since_limits_3 = pytest.mark.skipif(not hasattr(errors, "StorageError"), reason="limits 2 does not have this option")


# Storages that the tests keep alive: in `limits` 2.8, strategies have only weak references to their storages.
ALIVE = []


def created(uri, **options):
    # Keep calls from timing out on a slow machine, unless the URI sets a timeout.
    timeouts = {} if "socket_timeout=" in uri else {"socket_timeout": 60}
    ALIVE.append(storage_from_string(uri, **timeouts, **options))
    return ALIVE[-1]


def storage(server, options="", cell="redis-cell", **named):
    return created(f"{cell}://127.0.0.1:{server.port}{options}", **named)


def strategy(*arguments, **named):
    """Returns the strategy that Flask-Limiter and slowapi would create."""
    return STRATEGIES["moving-window"](storage(*arguments, **named))


def hits(limiter, times=5, limit=LIMIT, caller="caller", **named):
    return [limiter.hit(limit, caller, **named) for _ in range(times)].count(True)


@on_both
def test_the_uri_names_the_server_the_database_and_options(server, cell):
    limiter = MovingWindowRateLimiter(storage(server, "/3?socket_timeout=7", cell))
    assert hits(limiter) == 3 and server.client.info("keyspace").keys() == {"db3"}
    assert limiter.storage.storage.connection_pool.connection_kwargs["socket_timeout"] == 7


@on_both
def test_storage_options_reach_the_client_and_a_wrong_one_is_an_error(server, cell):
    server("CONFIG SET requirepass secret")
    assert hits(MovingWindowRateLimiter(storage(server, cell=cell, password="secret", db=2))) == 3
    with pytest.raises(TypeError):
        MovingWindowRateLimiter(storage(server, cell=cell, colour="red")).hit(LIMIT, "caller")


@on_both
def test_a_unix_socket(new_server, cell, tmp_path):
    new_server("--unixsocket", str(tmp_path / "redis"))
    limiter = MovingWindowRateLimiter(created(f"{cell}+unix://{tmp_path}/redis"))
    assert hits(limiter) == 3


@on_both
def test_tls(cell):
    client = storage_from_string(f"{cell}s://localhost:1").storage
    assert issubclass(client.connection_pool.connection_class, import_module(f"{cell[:-5]}.connection").SSLConnection)


@on_both
def test_a_cluster(new_server, cell):
    node, other = (new_server("--cluster-enabled", "yes") for _ in range(2))
    address, bus = Address(node), other.client.config_get("cluster-port")["cluster-port"]
    node(f"CONFIG SET cluster-announce-port {address.port}")
    node(f"CLUSTER MEET 127.0.0.1 {other.port} {bus}")
    node("CLUSTER ADDSLOTSRANGE 0 16000"), other("CLUSTER ADDSLOTSRANGE 16001 16383")
    wait_for("the cluster is up", lambda: all("cluster_state:ok" in str(one("CLUSTER INFO")) for one in (node, other)))
    uri = f"{cell}+cluster://127.0.0.1:{other.port}"
    try:
        limiter = MovingWindowRateLimiter(storage_from_string(uri, socket_timeout=1))
    except errors.ConfigurationError as error:
        pytest.skip(str(error))
    assert hits(limiter) == 3
    # `limits` 5.8 cannot reset a cluster through valkey-py.
    assert cell == "valkey-cell" or limiter.storage.reset() == 1
    node("FLUSHALL")
    # Lose the reply. Only one token is taken, because the call is not retried.
    address.fates("CL.PTHROTTLE", "lost")
    with pytest.raises(Unanswered):
        limiter.hit(LIMIT, "caller")
    assert MovingWindowRateLimiter(created(uri)).get_window_stats(LIMIT, "caller")[1] == 2


@on_both
def test_sentinel_with_a_password_of_its_own(server, request, tmp_path, cell):
    settings, port = tmp_path / "sentinel.conf", free_port()
    settings.write_text(f"port {port}\nrequirepass watch\nsentinel monitor limits 127.0.0.1 {server.port} 1\n")
    request.addfinalizer(subprocess.Popen([*WITH_THE_TEST, "KILL", "redis-server", settings, "--sentinel"]).kill)
    wait_for("Sentinel has connected", lambda: len(server.client.client_list()) > 2)
    options = {"use_replicas": False, "sentinel_kwargs": {"password": "watch"}}
    limiter = MovingWindowRateLimiter(created(f"{cell}+sentinel://127.0.0.1:{port}/limits", **options))
    assert hits(limiter) == 3


@on_both
def test_a_stuck_sentinel_is_asked_once_and_not_for_long(server, cell):
    address = Address(server)
    address.fates("", "lost")
    stuck = storage_from_string(f"{cell}+sentinel://127.0.0.1:{address.port}/limits")
    limiter = MovingWindowRateLimiter(stuck)
    with pytest.raises(Unanswered):
        limiter.hit(LIMIT, "caller")
    assert address.accepted == 1


@on_both
@pytest.mark.parametrize("options, tokens", [({}, 2), ({"retry_on_timeout": True}, 1)])
def test_a_call_without_a_reply_is_made_once_unless_an_option_says_otherwise(address, server, cell, options, tokens):
    address.fates("CL.PTHROTTLE", "lost")
    limiter = MovingWindowRateLimiter(storage(address, "?socket_timeout=1", cell, **options))
    try:
        limiter.hit(LIMIT, "caller")
    except Unanswered:
        assert not options
    assert MovingWindowRateLimiter(storage(server)).get_window_stats(LIMIT, "caller")[1] == tokens


@on_both
def test_without_an_option_the_timeouts_are_short(server, cell):
    settings = storage_from_string(f"{cell}://127.0.0.1:{server.port}").storage.connection_pool.connection_kwargs
    assert settings["socket_timeout"] == settings["socket_connect_timeout"] == 0.1


@since_limits_3
def test_wrap_exceptions(server):
    limiter = MovingWindowRateLimiter(storage(server, wrap_exceptions=True))
    server.kill()
    with pytest.raises(errors.StorageError):
        limiter.hit(LIMIT, "caller")
    with pytest.raises(errors.StorageError):
        limiter.get_window_stats(LIMIT, "caller")


@on_both
def test_an_outage_is_told_from_a_mistake(server, cell):
    limiter = MovingWindowRateLimiter(storage(server, cell=cell))
    with pytest.raises(Exception, match="quantity is not an integer or out of range") as mistake:
        limiter.hit(LIMIT, "caller", cost=2**64)
    assert mistake.type is not Unanswered and mistake.typename == "ResponseError"
    lack = "CONFIG SET min-replicas-to-write 1"
    for outage in lack, "CONFIG SET maxmemory 1", "REPLICAOF 127.0.0.1 1", "ACL SETUSER default -cl.pthrottle":
        server(outage)
        with pytest.raises(Unanswered):
            limiter.hit(LIMIT, "caller")


def test_a_server_with_too_many_clients_is_an_outage(address):
    """The error begins with ERR, like the errors for wrong arguments. A cluster node sends this message."""
    address.fates("CL.", b"-ERR max number of clients + cluster connections reached\r\n")
    with pytest.raises(Unanswered):
        strategy(address).hit(LIMIT, "caller")


def test_150_concurrent_calls_have_a_connection_each(server):
    limiter = strategy(server)
    server.process.send_signal(SIGSTOP)
    with ThreadPoolExecutor(150) as threads:
        passed = [threads.submit(limiter.hit, LIMIT, "caller") for _ in range(150)]
        wait_for("all calls wait", lambda: len(threads._threads) == 150)
        server.process.send_signal(SIGCONT)
    assert sum(call.result() for call in passed) == 3


@pytest.mark.parametrize("name", STRATEGIES)
def test_keys_are_none_of_the_other_storages(server, name):
    """An application can move from a storage of `limits` to ours, even one process at a time: no keys are shared."""
    others, ours = STRATEGIES[name](created(f"redis://127.0.0.1:{server.port}")), strategy(server)
    assert hits(others) == 3 and hits(ours) == 3
    assert hits(ours, caller="new") == 3 and hits(others, caller="new") == 3
    # Counts from an older version of `limits`, whose keys have no prefix, do not affect our storage either.
    server("SET", LIMIT.key_for("older"), "3")
    assert hits(ours, caller="older") == 3


def test_fixed_windows_are_those_of_limits(server):
    ours, theirs = storage(server), created(f"redis://127.0.0.1:{server.port}")
    assert hits(FixedWindowRateLimiter(ours), 2) == 2 and hits(FixedWindowRateLimiter(theirs), 2) == 1


def test_permissions_on_the_page_are_enough_and_none_can_be_left_out(server):
    page = " ".join((ROOT / "docs/operating.md").read_text().split())
    moving, fixed = (re.search(f"{words}[^`]* need `(.*?)`", page)[1].split() for words in
                     ("Flask-Limiter and slowapi", "For fixed windows"))
    ours, windows = (STRATEGIES[name](storage(server, username="limiter", password="secret")) for name in
                     ("moving-window", "fixed-window"))

    def uses(permissions):
        server(f"ACL SETUSER limiter reset on >secret ~LIMIT* +ping {' '.join(permissions)}")
        server("SCRIPT FLUSH")
        calls = [lambda: hits(ours), lambda: ours.test(LIMIT, "caller"), lambda: ours.clear(LIMIT, "caller")]
        if set(permissions) & set(fixed):
            calls += [lambda: hits(windows), lambda: windows.get_window_stats(LIMIT, "caller"), ours.storage.reset]
        for call in calls:
            call()

    for permissions in moving, moving + fixed:
        uses(permissions)
        for one in permissions:
            with pytest.raises((Unanswered, ResponseError)):
                uses([other for other in permissions if other != one])


def test_reset_clear_and_check(server):
    limiter = strategy(server)
    assert hits(limiter) == 3 and hits(limiter, caller="other") == 3
    limiter.clear(LIMIT, "caller")
    assert limiter.get_window_stats(LIMIT, "caller")[1] == 3
    assert hits(limiter) == 3 and hits(limiter, caller="other") == 0
    server("SET", "of another application", "1")
    limiter.storage.reset()
    assert server("KEYS *") == ["of another application"] and limiter.get_window_stats(LIMIT, "other")[1] == 3
    assert limiter.storage.check()
    server.kill()
    assert not limiter.storage.check()


@pytest.mark.skipif("key_prefix" not in signature(RedisStorage).parameters, reason="this version has no prefix")
def test_key_prefix(server):
    one, other = (strategy(server, key_prefix=name) for name in ("one", "other"))
    assert hits(one) == 3 and hits(other) == 3
    one.storage.reset()
    assert hits(one) == 3 and hits(other) == 0


def test_a_changed_rate_starts_full(server, clock):
    limiter = strategy(server)
    assert hits(limiter, 101, parse("100/day")) == 100 and hits(limiter, 101, parse("100/minute")) == 100


def test_reset_time_is_exact(server, clock):
    """A program may sleep until the reset time, so the time must be neither too early nor rounded to seconds."""
    limiter, limit = MovingWindowRateLimiter(storage(server)), parse("4/second")
    before = time.time()
    assert hits(limiter, limit=limit) == 4
    stats = limiter.get_window_stats(limit, "caller")
    assert stats[1] == 0 and before + 0.25 <= stats[0] + 0.0001 and stats[0] <= time.time() + 0.2501
    clock.set(clock.now + 249_999_000)
    assert hits(limiter, limit=limit) == 0
    clock.set(clock.now + 1_000)
    assert hits(limiter, limit=limit) == 1


def test_a_limit_of_0_and_a_cost_above_the_limit_have_a_whole_window_as_their_wait(server):
    limiter, now = strategy(server), time.time()
    for limit, cost in (parse("0/day"), 1), (LIMIT, 4):
        assert not limiter.hit(limit, "caller", cost=cost)
        assert limiter.get_window_stats(limit, "caller")[0] > now + 86399


@on_both
def test_a_key_may_have_a_lone_surrogate(server, cell):
    assert hits(MovingWindowRateLimiter(storage(server, cell=cell)), caller="\ud800") == 3


def test_half_the_number_is_a_hard_cap(server, clock):
    limiter, start, passed = strategy(server), clock.now, []
    for second in range(180):
        clock.set(start + second * 10**9)
        passed += [second] * hits(limiter, 40, parse("30/minute"))
    assert len(passed) > 110
    assert all(sum(second <= other < second + 60 for other in passed) <= 60 for second in range(120))


def test_stats_after_a_hit_are_what_the_hit_was_told_and_make_no_call(server, calls):
    limiter = strategy(server)
    assert hits(limiter, 1, cost=2) == 1 and limiter.get_window_stats(LIMIT, "caller")[1] == 1
    # This hit is refused for lack of one token, which comes back after eight hours. CL.PLOOK would return the sixteen
    # hours until all tokens are back.
    now = time.time()
    assert hits(limiter, 1, cost=2) == 0
    assert now + 28_799 < limiter.get_window_stats(LIMIT, "caller")[0] <= time.time() + 28_801
    assert calls("cl.pthrottle") == 2 and calls("cl.plook") == 0
    # A reply to a hit is not used for other callers, other limits or other storages.
    assert limiter.get_window_stats(LIMIT, "other")[1] == 3
    assert limiter.get_window_stats(parse("4/day"), "caller")[1] == 4
    assert strategy(server, "/1").get_window_stats(LIMIT, "caller")[1] == 3


def test_a_test_and_a_strategy_of_your_own_always_ask(server):
    limiter, elsewhere = strategy(server), strategy(server)
    assert limiter.hit(LIMIT, "caller")
    with ThreadPoolExecutor() as other:
        other.submit(hits, elsewhere, 2).result()
    assert not limiter.test(LIMIT, "caller")
    assert MovingWindowRateLimiter(ALIVE[-2]).get_window_stats(LIMIT, "caller")[1] == 0


def test_threads_and_tasks_keep_their_own_replies(server):
    limiter, barrier = strategy(server), Barrier(3)

    def hit_and_look(_):
        limiter.hit(LIMIT, "threads")
        barrier.wait()
        return limiter.get_window_stats(LIMIT, "threads")[1]

    async def hit_and_look_later(arrived, all_arrived):
        limiter.hit(LIMIT, "tasks")
        arrived.append(1)
        if len(arrived) == 3:
            all_arrived.set()
        await all_arrived.wait()
        return limiter.get_window_stats(LIMIT, "tasks")[1]

    async def tasks():
        arrived, all_arrived = [], asyncio.Event()
        # Make a hit before the tasks start, so that the context which they inherit already contains a reply.
        limiter.hit(parse("9/day"), "tasks")
        return await asyncio.gather(*(hit_and_look_later(arrived, all_arrived) for _ in range(3)))

    with ThreadPoolExecutor(3) as threads:
        assert sorted(threads.map(hit_and_look, range(3))) == [0, 1, 2]
    assert sorted(asyncio.run(tasks())) == [0, 1, 2]


def test_a_cost_with_a_fraction_is_rounded_up(server):
    assert hits(strategy(server), 3, parse("50/day"), cost=24.5) == 2


def test_once_all_tokens_are_back_stats_say_so(server):
    """A view may run for longer than the window."""
    limiter, limit = strategy(server), parse("5/second")
    assert limiter.hit(limit, "caller")
    reset_time = limiter.get_window_stats(limit, "caller")[0]
    wait_for("the tokens are back", lambda: time.time() > reset_time + 1)
    assert limiter.get_window_stats(limit, "caller")[1] == 5


def test_stats_of_other_storages_are_those_of_limits(server):
    for other in created("memory://"), created(f"redis://127.0.0.1:{server.port}"):
        limiters = [kind(other) for kind in (STRATEGIES["moving-window"], MovingWindowRateLimiter)]
        assert all(limiter.hit(LIMIT, "caller") for limiter in limiters)
        ours, theirs = (limiter.get_window_stats(LIMIT, "caller") for limiter in limiters)
        assert ours == theirs and ours[1] == 1


def test_what_is_kept_is_bounded(server):
    from redis_cell import _strategy

    limiter = strategy(server)
    assert all(hits(limiter, caller=str(number)) == 3 for number in range(50))
    assert len(_strategy.KEPT.get()) == _strategy.MOST_KEPT
