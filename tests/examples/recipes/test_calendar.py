"""Tests of docs/recipes/calendar_quota.lua and credits.lua: quotas that last until a period ends."""

import math

import pytest

QUOTAS, PERIODS = (7, 20), (60, 300)


@pytest.fixture
def ask(recipe):
    recipe.load("recipes/calendar_quota.lua")
    recipe.restrict("recipes/calendar_quota.lua")
    recipe.at(0)
    return lambda name, words: recipe.ask(f"{'FCALL_RO' if name == 'look' else 'FCALL'} calendar_{name} {words}")


def test_counters_and_a_limiter_take_all_or_none_until_their_periods_end(recipe, ask, chance):
    """Each call takes tokens from two counters and a limiter. A second limiter, the twin, is called directly."""
    used, ends, refusals = [0, 0], [0, 0], set()
    milliseconds = 0
    for _ in range(800):
        milliseconds += chance.randrange(4_000)
        if chance.random() < 0.1:
            # Move the clock to a whole second, because periods end on whole seconds.
            milliseconds += -(recipe.start // 10**6 + milliseconds) % 1_000
        recipe.at(milliseconds)
        now = recipe.clock.now / 10**9
        for place, period in enumerate(PERIODS):
            end = (int(now) // period + 1) * period
            used[place], ends[place] = used[place] if ends[place] == end else 0, end
        quantity = chance.choice((0, -1, -3, chance.randrange(25), 1, 1, 1, 2, 2))
        name = chance.choice(["throttle", "charge", "throttle", "throttle", "look"][: 5 if quantity >= 0 else 2])
        look = recipe(f"CL.LOOK {{a}}:twin 2 1 2 {max(quantity, 0)}")
        refused = [quantity >= 0 and taken + quantity > quota for taken, quota in zip(used, QUOTAS)]
        limited = any(refused) or quantity >= 0 and look[0] == 1
        takes = name == "charge" or name == "throttle" and not limited
        expected = [int(limited)]
        for place, quota in enumerate(QUOTAS):
            used[place] = max(used[place] + quantity, 0) if takes else used[place]
            rest = math.ceil(ends[place] - recipe.clock.now / 10**9)
            wait = rest if refused[place] and (quantity <= quota or name == "charge") else -1
            reset = rest if used[place] else 0
            expected.append([int(refused[place]), quota, max(quota - used[place], 0), wait, reset])
        expected.append(recipe(f"CL.{name} {{a}}:twin 2 1 2 {quantity}") if takes else look)
        numbers = f"{quantity} 7 {ends[0]} 20 {ends[1]} 2 1 2"
        assert ask(name, f"3 {{a}}:day {{a}}:month {{a}}:rate {numbers}") == expected, (milliseconds, name, numbers)
        assert len({*recipe("MGET {a}:rate {a}:twin")}) == 1
        refusals.add((*refused, look[0]))
    # Check that each limit was, at least once, the only one to refuse a call.
    assert {(True, False, 0), (False, True, 0), (False, False, 1)} <= refusals
    recipe.at(milliseconds + 300_000)
    assert recipe("EXISTS {a}:day {a}:month") == 0


def test_a_calendar_quota_that_gets_an_error_takes_nothing(recipe, ask):
    now = recipe.start // 10**9
    end = now + 3_600
    recipe("SET text x")
    call = f"2 day rate 2 10 {end} 4 1 60"
    taken = ask("throttle", call)
    for name, words, error in (
        ("throttle", "0 1", "wrong number of arguments"),
        ("throttle", f"1 day 1.5 10 {end}", "quantity must be a whole number from "),
        ("throttle", f"2 day other 1 10 {end} -1 {end}", r"quota must be a whole number from 0 .* \(key 2\)"),
        # An end in milliseconds instead of seconds is refused: the period would last for thousands of years.
        ("throttle", f"1 day 1 10 {end}000", "end must be a whole number from 0 "),
        ("throttle", f"2 day other 1 10 {end} 10 {now}", r"the period has ended \(key 2\)"),
        ("throttle", f"1 text 1 10 {end}", r"the key holds no counter \(key 1\)"),
        ("charge", f"2 day rate 99999999999 10 {end} 4 1 60", "quantity: the tokens would not be back before"),
        ("charge", f"1 day 999999999999999 10 {end}", r"the counter would have more than 15 digits \(key 1\)"),
    ):
        recipe.refuses(error, ask, name, words)
    for right in "set", "del":
        recipe(f"ACL SETUSER app -{right}")
        recipe.refuses("NOPERM|permission", ask, "throttle", call)
        recipe(f"ACL SETUSER app +{right}")
    recipe("REPLICAOF 127.0.0.1 1")
    assert ask("look", call) == taken


def test_a_calendar_period_never_ends_sooner_than_an_earlier_call_said(recipe, ask):
    """Otherwise, users could get a new day by moving their time zone to the east and back."""
    now = recipe.start // 10**9
    call = lambda quantity, quota, end: ask("throttle", f"1 {{a}}:2026-11-22 {quantity} {quota} {now + end}")[1]
    assert call(10, 10, 3_600) == [0, 10, 0, -1, 3_600]
    assert call(1, 10, 60) == [1, 10, 0, 3_600, 3_600]
    recipe.at(61_000)
    assert call(1, 10, 60) == [1, 10, 0, 3_539, 3_539]
    assert call(-4, 10, 60) == [0, 10, 4, -1, 3_539]
    # A smaller quota applies immediately. A refund after the period has ended changes nothing.
    assert call(0, 5, 3_600) == [1, 5, 0, 3_539, 3_539]
    recipe.at(3_601_000)
    assert call(-4, 10, 3_600) == [0, 10, 10, -1, 0]
    # Without string.format, Redis 7.2 would send this number from a script as 1.8e+9.
    assert call(10**9, 10**9, 1_800_000_000 - now)[:3] == [0, 10**9, 0]


@pytest.fixture
def credits(recipe):
    recipe.load("recipes/credits.lua")
    recipe.restrict("recipes/credits.lua")

    def credits(*numbers, name="throttle", id=None):
        call, keys = "FCALL_RO" if name == "look" else "FCALL", ["{a}:2026-11", "{a}:credits", *filter(None, [id])]
        return recipe.ask(f"{call} credits_{name}", len(keys), *keys, *numbers)

    return credits


def test_a_plan_is_used_before_credits_and_a_refund_goes_back_where_it_came_from(recipe, credits, chance):
    """The plan has 20 tokens a period, and the user sometimes buys credits. Each charge is made twice, to count once."""
    milliseconds = bought = plan = spent = 0
    end = recipe.start // 10**9 + 300
    states = set()
    for turn in range(1_200):
        milliseconds += chance.randrange(2_000)
        recipe.at(milliseconds)
        if recipe.clock.now >= end * 10**9:
            end, plan, spent = end + 300, 0, 0
        if chance.random() < 0.05:
            bought = recipe(f"INCRBY {{a}}:credits {15 - min(bought, 0)}")
        quantity = chance.choice((-9, -2, -1, 0, 1, 1, 2, 5, 12, 50))
        name = chance.choice(("throttle", "throttle", "look", "charge"))
        quantity = max(quantity, 0) if name == "look" else quantity
        own = min(quantity, 20 - plan) if quantity > 0 else -min(-quantity - min(-quantity, spent), plan)
        more = quantity - own if quantity > 0 else -min(-quantity, spent)
        limited = more > max(bought, 0)
        rest = math.ceil(end - recipe.clock.now / 10**9)
        wait = rest if limited and (quantity <= 20 + bought or name == "charge") else -1
        takes = name == "charge" or name == "throttle" and not limited
        if takes:
            plan, spent, bought = plan + own, spent + more, bought - more
        taken = more if takes else 0
        state = lambda first, wait: [first, [int(limited), 20, 20 - plan, wait, rest if plan else 0], bought, taken]
        id = f"{{a}}:{turn}" if name == "charge" else None
        assert credits(quantity, 20, end, name=name, id=id) == state(int(limited), wait), (milliseconds, quantity, name)
        states.add((name, limited, bought < 0))
        if name == "charge":
            limited = False
            assert credits(quantity, 20, end, name=name, id=id) == state(2, -1), (milliseconds, quantity, name)
    assert {("charge", True, True), ("throttle", False, True), ("throttle", True, False)} <= states


def test_a_charge_is_made_once_for_an_id_and_its_debt_is_paid_by_the_next_credits(recipe, credits):
    end = recipe.start // 10**9 + 300
    charge = lambda quantity, id="{a}:call", end=end: credits(quantity, 10, end, name="charge", id=id)
    recipe("SET {a}:credits 400")
    # The estimate was 400, but the call used 700, so charge the other 300.
    assert credits(400, 10, end) == [0, [0, 10, 0, -1, 300], 10, 390]
    assert charge(300) == [1, [1, 10, 0, 300, 300], -290, 300]
    recipe.refuses("charged with a different quantity", charge, 200)
    assert recipe("INCRBY {a}:credits 500") == 210
    # A charge may be retried after the end of its period.
    recipe.at(301_000)
    assert charge(300)[0] == 2 and charge(300)[2:] == [210, 300]
    recipe.refuses("the period has ended", charge, 1, "{a}:other")
    # The charge's id is forgotten after a day.
    assert recipe("TTL {a}:call") == 86_400 - 301
    # A user who has never bought credits can go into debt, too. With a quota of 0, no plan tokens ever come back.
    recipe("DEL {a}:credits {a}:2026-11")
    assert credits(3, 0, end + 300, name="charge", id="{a}:new") == [1, [1, 0, 0, -1, 0], -3, 3]


def test_a_call_on_credits_that_gets_an_error_takes_nothing(recipe, credits):
    end = recipe.start // 10**9 + 300
    recipe("SET {a}:credits 10")
    # A period never ends earlier than a previous call has said. With a quota of 0, calls use only credits.
    assert credits(25, 20, end) == [0, [0, 20, 0, -1, 300], 5, 5]
    assert credits(0, 20, end - 200) == [0, [0, 20, 0, -1, 300], 5, 0]
    assert credits(-25, 20, end)[2] == 10
    assert [credits(quantity, 0, end)[2] for quantity in (4, -3, -1, 4, -4)] == [6, 9, 10, 6, 10]
    credits(25, 20, end)
    for numbers, error in {
        (1, 20): "wrong number of arguments",
        (1, 20, 1000 * end): "end must be",
    }.items():
        recipe.refuses(error, credits, *numbers)
    charge = lambda quantity, id="{a}:call": credits(quantity, 20, end, name="charge", id=id)
    recipe.refuses("the same key twice", charge, 1, "{a}:credits")
    recipe.refuses("wrong number of arguments", charge, 1, None)
    charge(999_999_999_999_990, "{a}:large")
    recipe.refuses("more than 15 digits", charge, 999)
    charge(-999_999_999_999_990, "{a}:back")
    for right in "set", "del", "decrby":
        recipe(f"ACL SETUSER app -{right}")
        recipe.refuses("NOPERM|permission", credits, 1, 20, end)
        recipe.refuses("NOPERM|permission", charge, 1)
        recipe(f"ACL SETUSER app +{right}")
    # Credits that have expired are not refunded.
    recipe("DEL {a}:credits {a}:large {a}:back")
    assert credits(-25, 20, end) == [0, [0, 20, 20, -1, 0], 0, -5] and recipe("DBSIZE") == 0
    # With negative credits, as after a cancelled purchase, the plan can still be used.
    recipe("SET {a}:credits -3")
    assert credits(20, 20, end)[0] == 0 and credits(1, 20, end)[0] == 1
    recipe.at(300_000)
    recipe.refuses("the period has ended", credits, 1, 20, end)
    recipe("SET {a}:credits x")
    recipe.refuses("the key holds no plan, or no credits", credits, 1, 20, end + 300)
