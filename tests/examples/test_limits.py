"""limits.py by itself: numbers, decisions, addresses, and refused callers. test_shares.py has its share."""

import asyncio
import itertools
import json
import math
import os
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

import redis_asyncio
import redis_py
from limits import HEADERS, SECOND, Call, Limit, Share, show

DAY = 86400
WRONG = ValueError, TypeError
# A client whose server has gone.
NOBODY = redis_py.connect("redis://127.0.0.1:1")


@pytest.fixture
def client(server):
    return redis_py.connect(f"redis://127.0.0.1:{server.port}")


def statuses(client, limit, *quantities):
    return [redis_py.throttle(client, limit, "a", quantity)[0] for quantity in quantities]


def test_a_wrong_limit_is_refused_where_it_is_made_and_a_wrong_quantity_or_caller_where_it_is_called():
    right, wrong = (9, 10, 1), [(-2, 1, 60), (9, 0, 60), (9, 10, 0), (9, -1, 60), (0.5, 1, 1), ("9", 1, 1), (9, 1)]
    wrong += (9, 10**10, 1), (0, 1, 2**33), (True, 1, 1)
    limits = [("hello", quotas, {}) for quotas in ([], 9 * [right], *([quota] for quota in wrong), [right, wrong[0]])]
    limits += [(name, [right], {}) for name in ("login:account", ":", b"login", None)]
    settings = ("fail", "open"), ("fail", "close"), ("remember", -1), ("remember", 0.5), ("remember", True)
    limits += [("hello", [right], {name: value}) for name, value in settings]
    for name, quotas, settings in limits:
        with pytest.raises(WRONG):
            Limit(name, *quotas, **settings)
    for quantity in -1, 2**63, 1.5, math.nan, "1", True, None:
        with pytest.raises(WRONG):
            redis_py.throttle(None, Limit("hello", right), "a", quantity)
    # Two objects may have one text, and one object a new text in each process.
    for caller in None, True, 1.5, b"a", ("a",), object():
        with pytest.raises(WRONG, match="hello: .*caller"):
            redis_py.throttle(None, Limit("hello", right), caller)


def test_the_server_takes_every_quota_that_a_limit_takes(client):
    for quota in (-1, 1, 2**32), (0, 2**32, 2**32), (0, SECOND, 1), (0, 1, 2**32), (2**32 - 1, 1, 1):
        assert len(client.execute_command("CL.THROTTLE", *Limit(str(quota), quota).words("a"))) == 5


def imported(code="", **environment):
    """Imports limits.py in a process of its own, and returns how that ended."""
    words = [sys.executable, "-B", "-c", f"import json, limits; {code}"]
    return subprocess.run(words, cwd=CLIENTS, env={**os.environ, **environment}, capture_output=True, text=True)


def test_a_process_with_a_wrong_setting_does_not_start_and_names_it():
    wrong = [("TIMEOUT", word) for word in ("nan", "inf", "-1", "0", "")]
    wrong += [("PROCESSES", word) for word in ("-1", "0", "1.5", "")]
    for name, word in [*wrong, ("PROXY", "proxy.example")]:
        ended = imported(**{name: word})
        # The last line is the error. Those above it show the source, which names the setting anyway.
        said = ended.stderr if name == "PROXY" else ended.stderr.splitlines()[-1]
        assert ended.returncode and name in said, (word, ended)


def test_no_two_limits_and_callers_have_one_key_and_any_name_makes_one(client):
    callers = "a", "a:b", ":", "", "\ud800", "?", "\ufffd", 7
    keys = [Limit(name, (9, 1, 60)).words(caller)[0] for name in ("login", "a") for caller in callers]
    assert len({*keys}) == len(keys)
    assert redis_py.throttle(client, Limit("login", (2, 1, 60)), "\ud800\0 \U0001f600")[2] == "allowed"


def test_nobody_can_choose_callers_who_share_a_place_with_another():
    """Python's own hashes are the same in each process with PYTHONHASHSEED=0."""
    code = "print(limits.Call(limits.Limit('login', (9, 1, 60)), 'alice', 1).key.hex())"
    keys = {imported(code, PYTHONHASHSEED="0").stdout for _ in range(2)}
    assert len(keys) == 2 and all(len(key) == 33 for key in keys)


def test_the_last_address_that_a_proxy_has_added_counts():
    """test_http.py has addresses of each kind, and headers of two proxies."""
    addresses = {
        ("192.0.2.1", "10.0.0.1", "203.0.113.7"): "203.0.113.7",
        ("::ffff:192.0.2.1", "203.0.113.7:5678"): "203.0.113.7",
        ("198.51.100.9", "203.0.113.7, 198.51.100.5, 192.0.2.1"): "203.0.113.7",
        (None, "[2001:db8:1:2:3::4]:80"): "2001:db8:1:2::/64",
        # The peer is not a proxy, or the proxy's word not an address.
        ("192.0.2.2", "203.0.113.7"): "192.0.2.2",
        ("testclient", "203.0.113.7"): "testclient",
        **{("192.0.2.1", f"203.0.113.7, {word}"): "192.0.2.1" for word in ("unknown", "[", "1.2.3")},
    }
    code = f"print(json.dumps([limits.limited_address(peer, words) for peer, *words in {[*addresses]}]))"
    ended = imported(code, PROXY=" 192.0.2.1, 198.51.100.0/24,,unix ,")
    assert json.loads(ended.stdout) == [*addresses.values()], ended.stderr


def test_whatever_goes_wrong_is_no_answer_and_an_interrupt_is_not_caught():
    def failing(error):
        def execute_command(*words):
            raise error

        return SimpleNamespace(execute_command=execute_command)

    for ask in redis_py.ask, lambda client, word: asyncio.run(redis_asyncio.ask(client, word)):
        for error in RuntimeError("Event loop is closed"), ValueError(), TypeError(), IndexError(), RecursionError():
            assert ask(failing(error), "PING") is None
        for error in KeyboardInterrupt, asyncio.CancelledError, SystemExit:
            with pytest.raises(error):
                ask(failing(error()), "PING")


def test_a_quantity_that_is_never_allowed_is_413_or_403_and_one_that_a_share_never_has_503(client):
    for asked in client, NOBODY:
        for max_burst, quantity, expected in (2, 4, 413), (-1, 1, 403):
            status, headers, _ = redis_py.throttle(asked, Limit("plan", (max_burst, 1, 60)), "a", quantity)
            assert (status, "Retry-After" in headers) == (expected, False)
    half = Limit("half", (2, 1, 60), (3, 1, 60))
    half.share = Share([(2, 1, 60), (3, 1, 60)], 2)
    assert statuses(NOBODY, half, 2, 1, 1) == [503, 200, 429]


def test_all_headers_are_of_the_limit_with_fewer_remaining_or_that_refuses():
    few, many, two_quotas = (dict(zip(HEADERS, values.split())) for values in ("5 1 60", "9 8 10", "9 3 10 2"))
    for limits in itertools.permutations([few, many, two_quotas, {}]):
        shown = {"Allow": "GET"}
        for limit in limits:
            show((200, limit, "allowed"), shown)
        assert shown == {"Allow": "GET", **few}
    show((413, many, "limited"), shown)
    assert shown == {"Allow": "GET", **many}


def test_a_reply_that_is_not_five_integers_or_six_is_no_answer():
    """test_replies.py has those of a server: here are redis-py's own types, and several quotas."""
    one, two = Limit("one", (2, 1, 60)), Limit("two", (2, 1, 60), (9, 1, 60))
    right, deciding = [0, 3, 2, -1, 60], [0, 3, 2, -1, 60, 1]
    for limit, reply, other in (one, right, deciding), (two, deciding, right):
        assert Call(limit, "a", 1).decide(reply)[2] == "allowed"
        wrong = [[word, *reply[1:]] for word in (False, None, "0", b"0", 0.0, [0], 2**63)]
        for number, reply in enumerate([*wrong, other, [], [*reply, 0, 0], [reply], tuple(reply), "OK", 0, None, {}]):
            assert Call(limit, number, 1).decide(reply)[2] == "share", reply


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
    limit, all = Limit("remembered", (0, 10, 1), remember=60), []
    while all.count(200) < 20:
        look = server("CL.PLOOK", limit.words("a")[0], 0, 10, 1000)
        all += statuses(client, limit, 1)
        assert look[0] or all[-1] == 200, "the server would have allowed the call"
    assert all.count(429) > server("INFO commandstats")["cmdstat_cl.pthrottle"]["calls"]


def test_it_counts_from_before_the_call_and_is_bounded(client):
    limit = Limit("end", (0, 1, DAY), remember=10)

    def call(now, caller="a", wait=None):
        made = Call(limit, caller, 1)
        made.asked = now
        return made.decide([1, 1, 0, wait, 0]) if wait else made.known() and made.known()[1]["Retry-After"]

    # Redis has rounded the wait up to 2 ms.
    call(100, wait=2)
    assert [call(100 + later) for later in (0, SECOND // 1000 - 1, SECOND // 1000)] == ["1", "1", None]
    call(100, wait=60_001)
    assert [call(100 + later * SECOND) for later in (0, 9, 10)] == ["60", "51", None]
    for number in range(10_000):
        call(100, number, wait=2)
    assert call(100) is None and call(100, 0) and len(limit.refused) == 10_000


def test_another_quantity_is_another_call_and_by_default_nothing_is_remembered(client):
    assert statuses(client, Limit("quantities", (2, 1, DAY), remember=60), 2, 2, 1) == [200, 429, 200]
    without = Limit("off", (0, 1, DAY))
    assert statuses(client, without, 1, 1) == [200, 429] and not without.refused


def test_milliseconds_are_rounded_up_to_seconds(client):
    answers = [redis_py.throttle(client, Limit("ms", (0, 2, 3), remember=60), "a")[1] for _ in range(2)]
    assert (answers[0]["X-RateLimit-Reset"], answers[1]["Retry-After"]) == ("2", "2")
