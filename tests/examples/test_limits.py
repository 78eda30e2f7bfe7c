"""limits.py by itself: numbers, decisions, addresses, the share, and refused callers."""

import asyncio
import hashlib
import itertools
import math
import os
import random
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import pytest

from packages import ROOT

# Redis decides each call: an hour is longer than any machine takes.
os.environ["TIMEOUT"] = "3600"
CLIENTS = ROOT / "docs/clients"
sys.path.insert(0, str(CLIENTS))

import limits
import redis_asyncio
import redis_py
from limits import HEADERS, SECOND, Call, Limit, Share, decide_together, show

DAY = 86400
WRONG = ValueError, TypeError


def digest(key):
    return hashlib.sha256(str(key).encode()).digest()


@pytest.fixture
def client(server):
    return redis_py.connect(f"redis://127.0.0.1:{server.port}")


@pytest.fixture
def nobody():
    """A client whose server has gone."""
    return redis_py.connect("redis://127.0.0.1:1")


def test_a_wrong_quota_is_refused_where_the_limit_is_made():
    below = (-2, 1, 60), (9, 0, 60), (9, 10, 0), (9, -1, 60)
    for quota in *below, (0.5, 1, 1), ("9", 1, 1), (9, 10**10, 1), (0, 1, 2**33), (True, 1, 1), (9, 1):
        with pytest.raises(WRONG):
            Limit("hello", quota)
        with pytest.raises(WRONG):
            Limit("hello", (9, 10, 1), quota)
    for wrong in dict(fail="open"), dict(fail="close"), dict(remember=-1), dict(remember=0.5), dict(remember=True):
        with pytest.raises(ValueError):
            Limit("hello", (9, 10, 1), **wrong)
    for name in "login:account", ":", b"login", None:
        with pytest.raises(ValueError):
            Limit(name, (9, 10, 1))
    for quotas in [], [(9, 10, 1)] * 9:
        with pytest.raises(ValueError):
            Limit("hello", *quotas)


def test_the_server_takes_every_quota_that_a_limit_takes(client):
    for quota in (-1, 1, 2**32), (0, 2**32, 2**32), (0, SECOND, 1), (0, 1, 2**32), (2**32 - 1, 1, 1):
        assert len(client.execute_command("CL.THROTTLE", *Limit(str(quota), quota).words("a"))) == 5


def test_a_quantity_is_a_number_of_tokens():
    for quantity in -1, 2**63, 1.5, math.nan, "1", True, None:
        with pytest.raises(WRONG):
            redis_py.throttle(None, Limit("hello", (9, 10, 1)), "a", quantity)


def imported(module="limits", code="", **environment):
    """Imports a file of the examples in a process of its own, and returns how that ended."""
    words = [sys.executable, "-B", "-c", f"import {module} as it; {code}"]
    return subprocess.run(words, cwd=CLIENTS, env={**os.environ, **environment}, capture_output=True, text=True)


@pytest.mark.parametrize("name, words", {
    "TIMEOUT": ["nan", "inf", "-1", "0", "", "soon"], "PROCESSES": ["-1", "0", "1.5", "", "two"], "PROXY": ["proxy.example"],
}.items())
def test_a_process_with_a_wrong_setting_does_not_start_and_names_it(name, words):
    for word in words:
        ended = imported(**{name: word})
        assert ended.returncode and name in ended.stderr, (word, ended)


def test_any_list_of_proxies_is_read():
    for words, number in ("", 0), ("unix", 0), (" 192.0.2.1, 2001:db8::/48,,unix ,", 2):
        assert imported(code="print(len(it.NETWORKS))", PROXY=words).stdout == f"{number}\n", words


def test_no_two_limits_and_callers_have_one_key():
    callers = "a", "a:b", ":", "", "\ud800", "?", "\ufffd", ("a",), b"a"
    keys = [Limit(name, (9, 1, 60)).words(caller)[0] for name in ("login", "a") for caller in callers]
    assert len({*keys}) == len(keys)


def test_nobody_can_choose_callers_who_share_a_place_with_another():
    """Python's own hashes are the same in each process with PYTHONHASHSEED=0."""
    code = "print(it.Call(it.Limit('login', (9, 1, 60)), 'alice', 1).key.hex())"
    keys = {imported(code=code, PYTHONHASHSEED="0").stdout for _ in range(2)}
    assert len(keys) == 2 and all(len(key) == 33 for key in keys)


def test_whatever_goes_wrong_is_no_answer_and_an_interrupt_is_not_caught():
    def failing(error):
        def execute_command(*words):
            raise error

        return SimpleNamespace(execute_command=execute_command)

    asks = redis_py.ask, lambda client, word: asyncio.run(redis_asyncio.ask(client, word))
    for ask in asks:
        for error in RuntimeError("Event loop is closed"), ValueError(), TypeError(), IndexError(), RecursionError():
            assert ask(failing(error), "PING") is None
        for error in KeyboardInterrupt, asyncio.CancelledError, SystemExit:
            with pytest.raises(error):
                ask(failing(error()), "PING")


def test_a_quantity_above_the_limit_is_413_and_a_closed_plan_403_without_a_wait(client, nobody):
    open_plan, closed_plan = Limit("open", (2, 1, 60)), Limit("closed plan", (-1, 1, 60))
    for asked in client, nobody:
        for limit, quantity, expected in (open_plan, 4, 413), (closed_plan, 1, 403):
            status, headers, _ = redis_py.throttle(asked, limit, "a", quantity)
            assert (status, "Retry-After" in headers) == (expected, False)


def test_a_quantity_that_a_share_never_has_is_503_without_redis(nobody):
    limit = Limit("half", (2, 1, 60), (3, 1, 60))
    limit.share = Share([(2, 1, 60), (3, 1, 60)], 2)
    assert redis_py.throttle(nobody, limit, "a", 2) == (503, {"Retry-After": "1"}, "share")
    assert redis_py.throttle(nobody, limit, "a") == (200, {}, "share")


def test_the_wait_of_several_limits_is_that_of_the_limited_ones():
    allowed, waiting, never = [0, 5, 4, -1, 60], [1, 5, 0, 180, 900], [1, 0, 0, -1, 0]
    for rows, expected in (
        ([allowed, waiting], (429, {"Retry-After": "180"}, "limited")),
        ([waiting, never], (403, {}, "limited")),
        ([never, allowed], (403, {}, "limited")),
    ):
        assert decide_together([1, *rows]) == expected
    assert decide_together([0, allowed, allowed])[0] == 200
    assert decide_together(None)[0] == 503


def test_all_headers_are_of_the_limit_with_fewer_remaining():
    headers = lambda *values: dict(zip(HEADERS, values))
    few, many, two_quotas = headers("5", "1", "60"), headers("9", "8", "10"), headers("9", "3", "10", "2")
    for limits in itertools.permutations([few, many, two_quotas, {}]):
        shown = {"Allow": "GET"}
        for limit in limits:
            show((200, limit, "allowed"), shown)
        assert shown == {"Allow": "GET", **few}
    show((413, many, "limited"), shown)
    assert shown == {"Allow": "GET", **many}


def test_a_reply_that_is_not_five_integers_or_six_is_no_answer():
    one, two = Limit("one", (2, 1, 60)), Limit("two", (2, 1, 60), (9, 1, 60))
    right, deciding = [0, 3, 2, -1, 60], [0, 3, 2, -1, 60, 1]
    for limit, reply, other in (one, right, deciding), (two, deciding, right):
        assert Call(limit, "a", 1).decide(reply)[2] == "allowed"
        wrong = [[word, *reply[1:]] for word in (False, None, "0", b"0", 0.0, [0], 2**63)]
        wrong += other, [], [*reply, 0, 0], [reply], tuple(reply), "OK", 0, None, {}
        for number, reply in enumerate(wrong):
            assert Call(limit, number, 1).decide(reply)[2] == "share", reply
            assert limit == two or decide_together([0, reply])[0] == decide_together(reply)[0] == 503, reply
    assert decide_together([False, right])[0] == 503


def test_milliseconds_are_rounded_up_to_seconds(client):
    limit = Limit("ms", (0, 2, 3), remember=60)
    assert redis_py.throttle(client, limit, "a")[1]["X-RateLimit-Reset"] == "2"
    assert redis_py.throttle(client, limit, "a")[1]["Retry-After"] == "2"


def test_any_name_makes_a_key(client):
    status, _, how = redis_py.throttle(client, Limit("login", (2, 1, 60)), "\ud800\0 \U0001f600")
    assert (status, how) == (200, "allowed")


def set_proxies(monkeypatch, text):
    monkeypatch.setattr(limits, "PROXY", text.replace(",", " ").split())
    words = [word for word in limits.PROXY if word != "unix"]
    networks = [limits.ipaddress.ip_network(limits.parse(word) or word) for word in words]
    monkeypatch.setattr(limits, "NETWORKS", networks)


def test_the_last_address_that_a_proxy_has_added_counts(monkeypatch):
    set_proxies(monkeypatch, "192.0.2.1, 198.51.100.0/24,unix,")
    for peer, forwarded, limited in (
        ("192.0.2.1", [], "192.0.2.1"),
        ("2001:db8:1:2:3::4", [], "2001:db8:1:2::/64"),
        ("192.0.2.1", ["10.0.0.1, 203.0.113.7"], "203.0.113.7"),
        ("192.0.2.1", ["10.0.0.1", "203.0.113.7"], "203.0.113.7"),
        ("::ffff:192.0.2.1", ["203.0.113.7:5678"], "203.0.113.7"),
        (None, ["[2001:db8:1:2:3::4]:80"], "2001:db8:1:2::/64"),
        ("192.0.2.1", ["fe80::1%eth0"], "fe80::/64"),
        # Behind two proxies, and behind any of a network.
        ("192.0.2.1", ["10.0.0.1, 203.0.113.7, 198.51.100.5"], "203.0.113.7"),
        ("198.51.100.9", ["203.0.113.7, 198.51.100.5, 192.0.2.1"], "203.0.113.7"),
        # An empty word is none.
        ("192.0.2.1", ["203.0.113.7,", ", "], "203.0.113.7"),
        # The peer is not a proxy.
        ("192.0.2.2", ["203.0.113.7"], "192.0.2.2"),
        ("testclient", ["203.0.113.7"], "testclient"),
        # The proxy's word is not an address.
        *(("192.0.2.1", [f"203.0.113.7{word}"], "192.0.2.1") for word in (", unknown", ", [", ", 1.2.3")),
    ):
        assert limits.limited_address(peer, forwarded) == limited, (peer, forwarded)


def test_a_proxy_without_an_address_is_an_error(monkeypatch):
    with pytest.raises(ValueError):
        set_proxies(monkeypatch, "proxy.example")


def test_no_key_gets_more_than_its_share():
    """300,000 takes against the exact rule. Of 2,000 keys, few are refused for the takes of others."""
    chance, beyond, wrongly, allowed = random.Random(1), 0, 0, 0
    for quota, processes, keys in ((2, 1, 60), 1, 2_000), ((99, 100, 60), 3, 2_000), ((9, 1000, 1), 2, 50_000):
        share, exact, now = Share([quota], processes), {}, 0
        (step, burst, *_), = share.parts
        for _ in range(100_000):
            now += chance.randrange(2 * quota[2] * SECOND // quota[1] // keys + 2)
            key, quantity = str(int(keys * chance.random() ** 2)), chance.choice([0, 1, 1, 1, 2])
            moment = max(now, exact.get(key, 0)) + quantity * step
            if share.take(digest(key), quantity, now):
                wrongly += keys == 2_000 and moment - burst <= now
            else:
                beyond += moment - burst > now
                allowed += 1
                exact[key] = moment
    assert beyond == 0
    assert allowed > 25_000
    assert wrongly == 0


def test_65_536_callers_who_use_all_refuse_no_other():
    share = Share([(2, 1, DAY)], 1)
    assert all(share.take(digest(number), 3, 0) == 0 for number in range(65_536 + 1_000))


def test_a_share_is_a_part_of_the_limit_and_of_no_tokens_none():
    parts = (8, 1, 9), (8, 2, 4), (8, 9, 1), (8, 100, 1), (0, 2, 1), (-1, 1, 0), (-1, 9, 0)
    for max_burst, processes, tokens in parts:
        share = Share([(max_burst, 1, DAY)], processes)
        taken = sum(share.take(digest("key"), 1, 0) == 0 for _ in range(100))
        assert taken == tokens, (max_burst, processes)
    share = Share([(0, 7, 10)], 3)
    # One comes back each ceil(3 * 10 s / 7).
    assert [share.take(digest("key"), 1, now) for now in (0, 4285714285, 4285714286)] == [0, 1, 0]


def test_several_quotas_give_all_or_none():
    share = Share([(9, 1, DAY), (2, 1, DAY)], 1)
    refused = [share.take(digest("key"), quantity, 0) > 0 for quantity in (4, 3, 1)]
    assert refused == [True, False, True]
    (step, _, _, moments), _ = share.parts
    assert max(moments) == 3 * step


def test_the_memory_is_the_same_after_40_000_long_names():
    limit, sizes = Limit("long", (2, 1, DAY), remember=60), []
    tracemalloc.start()
    for number in range(40_000):
        if number in (20_000, 39_999):
            sizes.append(tracemalloc.get_traced_memory()[0])
        call = Call(limit, f"{number:1000}", 1)
        call.decide_alone()
        call.decide([1, 3, 0, 60_000, 60_000])
    tracemalloc.stop()
    assert len(limit.refused) == 10_000
    # A name has a thousand bytes.
    assert sizes[0] < 10_000 * 500 and sizes[1] - sizes[0] < 100_000


def test_a_refused_caller_is_refused_without_a_call_and_no_longer_than_by_the_server(client, server):
    limit = Limit("remembered", (0, 10, 1), remember=60)
    counts = {200: 0, 429: 0}
    while counts[200] < 20:
        look = server("CL.PLOOK", limit.words("a")[0], 0, 10, 1000)
        status, _, _ = redis_py.throttle(client, limit, "a")
        counts[status] += 1
        assert not (look[0] == 0 and status == 429), "the server would have allowed the call"
    stats = {name.lower(): stat["calls"] for name, stat in server("INFO commandstats").items()}
    assert counts[429] > stats["cmdstat_cl.pthrottle"]


def test_it_counts_from_before_the_call_and_is_bounded():
    limit = Limit("end", (0, 1, DAY), remember=10)

    def call(now, caller="a"):
        made = Call(limit, caller, 1)
        made.asked = now
        return made

    def waits(*moments):
        known = [call(now).known() for now in moments]
        return [decision and decision[1]["Retry-After"] for decision in known]

    # Redis has rounded the wait up to 2 ms.
    call(100).decide([1, 1, 0, 2, 0])
    assert waits(100, 100 + SECOND // 1000 - 1, 100 + SECOND // 1000) == ["1", "1", None]
    call(100).decide([1, 1, 0, 60_001, 0])
    assert waits(100, 100 + 9 * SECOND, 100 + 10 * SECOND) == ["60", "51", None]
    for number in range(10_000):
        call(100, number).decide([1, 1, 0, 2, 0])
    assert waits(100) == [None] and call(100, 0).known() and len(limit.refused) == 10_000


def test_another_quantity_is_another_call_and_by_default_nothing_is_remembered(client):
    limit = Limit("quantities", (2, 1, DAY), remember=60)
    statuses = [redis_py.throttle(client, limit, "a", quantity)[0] for quantity in (2, 2, 1)]
    assert statuses == [200, 429, 200]
    without = Limit("off", (0, 1, DAY))
    assert [redis_py.throttle(client, without, "a")[0] for _ in range(2)] == [200, 429] and not without.refused


def test_a_deleted_key_counts_after_the_end(client):
    limit = Limit("deleted", (0, 1, DAY), remember=1)
    statuses = [redis_py.throttle(client, limit, "a")[0] for _ in range(2)]
    client.delete("deleted:a")
    assert [*statuses, redis_py.throttle(client, limit, "a")[0]] == [200, 429, 429]
    limits.time.sleep(1)
    assert redis_py.throttle(client, limit, "a")[0] == 200
