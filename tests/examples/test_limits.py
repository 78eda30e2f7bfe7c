"""limits.py and limits.js by themselves, in the same cases; and each share, also of limits.lua, in exact integers."""

import itertools
import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
from math import inf, nan
from types import SimpleNamespace
from unittest import mock

import pytest

from applications import named, on
from packages import HERE, ROOT
from servers import need

CLIENTS = ROOT / "docs/clients"
sys.path.insert(0, str(CLIENTS))

from limits import HEADERS, show

DAY = 86400
ALLOWED = [0, 3, 2, -1, 60]
refused = lambda wait: [1, 1, 0, wait, wait]


def outcome_of(environment={}, quotas=[(2, 1, 60)], name="wrong", calls=(), **settings):
    """Makes a limit in a process with this environment, and calls: the moment of each in milliseconds, the caller, the
    quantity, and Redis's reply, which takes a second. Returns the decisions, the commands, and the callers that the
    limit remembers; or an error."""
    now, decisions, commands = 0, [], []
    clock = mock.patch("time.monotonic_ns", lambda: int(now * 10**6))
    with clock, mock.patch.dict(os.environ, environment):
        try:
            limits = SimpleNamespace(**runpy.run_path(CLIENTS / "limits.py"))
            limit = limits.Limit(name, *quotas, **settings)
            for now, caller, quantity, reply in calls:
                call = limits.Call(limit, caller, quantity)
                if not (decision := call.known()):
                    commands.append(call.words)
                    now += 1000
                    decision = call.decide(reply)
                decisions.append(decision)
        except (TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    return decisions, commands, [str(call) for call in limit.refused]


def python(*cases):
    return [outcome_of(**case) for case in cases]


def node(*cases):
    words = need("node", shutil.which("node")), HERE / "outcomes.js"
    return json.loads(subprocess.check_output(words, cwd=CLIENTS, input=json.dumps(cases), text=True))


@pytest.fixture(params=[python, node])
def outcomes(request):
    """Returns the outcome of each case by limits.py, or by limits.js."""
    return request.param


def test_a_wrong_limit_call_or_setting_is_refused_by_an_error_that_names_it(outcomes):
    wrong = [(-2, 1, 60), (9, 0, 60), (9, 10, 0), (0.5, 1, 1), ("9", 1, 1), (True, 1, 1), (nan, 1, 1), (9, inf, 1)]
    wrong += [(9, 10**10, 1), (0, 1, 2**33), (2**40, 1, DAY), (9, 1), (9, 1, 1, 1), (), None]
    # Two objects may have one text, and in Python one object a new text in each process.
    callers = [None, True, ["a"], {}, *([1.5, b"a"] if outcomes is python else ["bob\ud800", "\udfff\ud800"])]
    named = {
        "wrong|unpack": [{"quotas": quotas} for quotas in ([], 9 * [(9, 1, 60)], *([quota] for quota in wrong))],
        "name|text": [{"name": name} for name in ("login:account", ":", 5, None, ["a"])],
        "wrong: fail": [{"fail": fail} for fail in ("open", None)],
        "wrong.*remember": [{"remember": remember} for remember in (-1, 0.5, "10", True, nan)],
        "a quantity": [{"calls": [(0, "a", number, ALLOWED)]} for number in (-1, 2**63, 1.5, nan, "1", True, None)],
        "wrong: a caller": [{"calls": [(0, caller, 1, ALLOWED)]} for caller in callers],
        "TIMEOUT": [{"environment": {"TIMEOUT": word}} for word in ("nan", "inf", "-1", "")],
        "PROCESSES": [{"environment": {"PROCESSES": word}} for word in ("-1", "0", "1.5", "")],
        "PROXY|network": [{"environment": {"PROXY": word}} for word in ("a.example", "::1/129")],
        "REDIS_PORT": [{"environment": {"REDIS_PORT": word}} for word in ("abc", "70000") if outcomes is node],
    }
    for name, cases in named.items():
        for case, error in zip(cases, outcomes(*cases)):
            assert re.match(rf"(Range|Value|Type)Error: .*({name})", str(error)), case


def test_the_server_takes_every_quota_and_caller_that_a_limit_takes(outcomes, server):
    quotas = (-1, 1, 2**32), (0, 2**32, 2**32), (0, 10**9, 1), (0, 1, 2**32), (2**32 - 1, 1, 1)
    callers = ["a", "a:b", ":", "", "?", "\ufffd", "\0 \U0001f600", 7, *(["\ud800"] if outcomes is python else [])]
    calls = [(0, caller, 1, ALLOWED) for caller in callers]
    in_s = [{"quotas": [quota], "calls": calls} for quota in quotas]
    in_ms = [{**case, "name": "in ms", "remember": 1} for case in in_s]
    for (_, commands, _), (_, others, _) in zip(outcomes(*in_s), outcomes(*in_ms)):
        assert len({words[1] for words in commands}) == len(callers), "no two callers have one key"
        for command, command_in_ms in zip(commands, others):
            reply, reply_in_ms = server(*command), server(*command_in_ms)
            assert reply[:3] == reply_in_ms[:3] and reply[4] == -(-reply_in_ms[4] // 1000)


TWO = [(2, 1, 60), (3, 1, 60)]
# The settings of a limit, and its calls as in `outcome_of`, each with its status, Retry-After and X-RateLimit-Reset.
DECISIONS = [
    (
        {"remember": 10},
        # A wait begins before the call, and Redis has rounded it up to a millisecond.
        (100, "a", 1, refused(2), 429, 1, 1),
        (100.9, "a", 1, None, 429, 1, None),
        (101, "a", 1, ALLOWED, 200, None, 1),
        # It counts for ten seconds.
        (0, "b", 1, refused(60_001), 429, 61, 61),
        (9_000, "b", 1, None, 429, 51, None),
        (10_000, "b", 1, ALLOWED, 200, None, 1),
        # Another quantity is another call.
        (10_000, "b", 2, refused(60_001), 429, 61, 61),
        (10_001, "b", 1, ALLOWED, 200, None, 1),
    ),
    # By default nothing is remembered.
    ({}, (0, "a", 1, refused(60), 429, 60, 60), (1, "a", 1, ALLOWED, 200, None, 60)),
    # No wait would help.
    ({}, (0, "a", 4, [1, 3, 2, -1, 60], 413, None, 60), (0, "a", 4, None, 413, None, None)),
    ({"quotas": [(-1, 1, 60)]}, (0, "a", 1, [1, 0, 0, -1, 0], 403, None, 0), (0, "a", 1, None, 403, None, None)),
    # A share of one token never has two, but Redis may have them when it is back.
    (
        {"quotas": TWO, "environment": {"PROCESSES": "2"}},
        (0, "a", 2, None, 503, 1, None),
        (0, "a", 1, None, 200, None, None),
        (0, "a", 1, None, 429, 120, None),
    ),
    # A reply that is not five integers, or six with several quotas, is no answer: the share allows the call.
    *(({}, (0, "a", 1, [word, *ALLOWED[1:]], 200, None, None)) for word in ("0", False, None, 0.5, [0], 2**63)),
    ({}, (0, "a", 1, [*ALLOWED, 1], 200, None, None)),
    ({"quotas": TWO}, (0, "a", 1, [*ALLOWED, 1], 200, None, 60), (0, "b", 1, ALLOWED, 200, None, None)),
]


def test_a_decision_is_that_of_redis_or_what_is_remembered_or_the_shares(outcomes):
    cases = [{**settings, "calls": [call[:4] for call in calls]} for settings, *calls in DECISIONS]
    times = lambda headers: [int(headers[name]) if name in headers else None for name in ("Retry-After", HEADERS[2])]
    for (_, *calls), (decisions, *_) in zip(DECISIONS, outcomes(*cases)):
        assert [(status, *times(headers)) for status, headers, _ in decisions] == [call[4:] for call in calls]


def test_10_000_refused_callers_are_remembered_by_a_secret_and_without_their_names(outcomes):
    calls = [(0, f"{number:200}", 1, refused(DAY)) for number in range(11_000)]
    last = [(1, caller, 1, None) for _, caller, *_ in (calls[-1], calls[0])]
    (decisions, _, remembered), (*_, others) = outcomes(*2 * [{"calls": [*calls, *last], "remember": 60}])
    assert [how for _, _, how in decisions[-2:]] == ["limited", "share"]
    assert len({*remembered, *others}) == 20_000 and max(map(len, remembered)) < 100


def test_all_headers_are_of_the_limit_with_fewer_remaining_or_that_refuses():
    few, many, two_quotas = (dict(zip(HEADERS, values.split())) for values in ("5 1 60", "9 8 10", "9 3 10 2"))
    for limits in itertools.permutations([few, many, two_quotas, {}]):
        shown = {"Allow": "GET"}
        for limit in limits:
            show((200, limit, "allowed"), shown)
        assert shown == {"Allow": "GET", **few}
    show((413, many, "limited"), shown)
    assert shown == {"Allow": "GET", **many}


# Quotas, keys, calls, and the longest pause between two calls, each 125 microseconds: a float has these exactly.
SHARES = [
    # A token takes 125.0005 microseconds, and a share has at least one.
    ([[0, 15_999_936, 1000]], 9, 20_000, 1),
    ([[9, 1, 1], [7, 1, 2]], 2_000, 20_000, 80),
    ([[8, 1, 60]], 2_000, 20_000, 250),
    # Three quarters of these calls are first calls: 60,000 callers who use all refuse no other, and 97,500 do.
    ([[1, 1, 86400]], 10**9, 80_000, 1),
    ([[1, 1, 86400]], 10**9, 130_000, 1),
]


def hold(take, largest=2):
    """Holds what a share of two processes takes, in calls at random, against a limiter for each key."""
    for quotas, keys, number, pause in SHARES:
        rules = [(count, 2 * period * 10**6, max(1, (burst + 1) // 2)) for burst, count, period in quotas]
        chance, exact, wrongly = random.Random(1), {}, 0
        moments = itertools.accumulate(125 * chance.randint(0, pause) for _ in range(number))
        key = lambda: f"key{chance.randrange(chance.choice([5, keys, keys, keys]))}"
        tokens = min(largest, *(most for *_, most in rules))
        calls = [(now, key(), chance.randint(1, tokens)) for now in moments]
        taken = take(quotas, calls)
        assert len(taken) == len(calls) and sum(taken) > len(calls) / 10
        for (now, key, quantity), is_taken in zip(calls, taken):
            before = exact.get(key, [0] * len(rules))
            after = [max(moment, now * count) + quantity * step for moment, (count, step, _) in zip(before, rules)]
            fits = all(moment - most * step <= now * count for moment, (count, step, most) in zip(after, rules))
            assert fits or not is_taken, f"{quotas}: {key} gets more than its share"
            if is_taken:
                exact[key] = after
            wrongly += fits and not is_taken
        assert bool(wrongly) == (number == 130_000), f"{quotas}: {wrongly} calls of {len(calls)}"


def test_a_share_passes_nothing_beyond_its_part(outcomes):
    def take(quotas, calls):
        calls = [(now / 1000, key, quantity, None) for now, key, quantity in calls]
        ((decisions, *_),) = outcomes({"quotas": quotas, "calls": calls, "environment": {"PROCESSES": "2"}})
        return [status == 200 for status, *_ in decisions]

    hold(take)


@on(named("nginx"))
def test_a_share_in_nginx_passes_nothing_beyond_its_part(app, tmp_path):
    def take(quotas, calls):
        (tmp_path / "calls").write_text("".join(f"{now} {key}\n" for now, key, _ in calls))
        lua = json.dumps(quotas, separators=(",", ":")).translate({ord("["): "{", ord("]"): "}"})
        return json.loads(app.get(f"/exact?file={tmp_path}/calls&quotas={lua}").body)

    # A call of nginx is of one token, and two workers divide a limit.
    hold(take, largest=1)
