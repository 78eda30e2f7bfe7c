"""Recipes about the numbers of a limiter: a plan that changes, a pause, a move from redis_rate."""

import pytest

PLANS = ("9 10 86400", "99 100 86400", "6 7 3600", "999999 1000000 1")


@pytest.fixture
def change(recipe):
    recipe.restrict("recipes/change_plan.lua")
    return lambda words: recipe.eval("recipes/change_plan.lua", words)


def test_a_plan_that_changes_keeps_what_was_taken_from_each_quota(recipe, change):
    # A full limiter has no key.
    assert change("bob , 9 10 86400 to 99 100 86400") == [0, 100, 100, -1, 0] and recipe("DBSIZE") == 0
    recipe("CL.THROTTLE alice 499 500 1 400 499 500 86400")
    assert change("alice , 499 500 1 499 500 86400 to 99 100 1 24999 25000 86400")[:3] == [1, 100, 0]
    assert recipe("CL.LOOK alice 24999 25000 86400 0 24999 25000 86400")[2] == 24_600


def missing(recipe, plan, number):
    """Returns how many tokens are missing from a quota. A large limit also counts debts."""
    timestamp = recipe("GET key")[19 * number:][:19]
    recipe("SET twin", timestamp)
    _, limit, remaining, *_ = recipe("CL.LOOK twin 99999 " + plan.split(" ", 1)[1] + " 0")
    recipe("DEL twin")
    return limit - remaining


def test_changing_plans_often_does_not_bring_tokens_back(recipe, change, chance):
    old = [PLANS[0], PLANS[1]]
    for turn in range(150):
        recipe.at(777 * turn)
        recipe(f"CL.CHARGE key {old[0]} {chance.randrange(1, 60)} {old[1]}")
        new = [chance.choice(PLANS), chance.choice(PLANS)]
        before = [missing(recipe, plan, number) for number, plan in enumerate(old)]
        change(f"key , {' '.join(old)} to {' '.join(new)}")
        assert [missing(recipe, plan, number) for number, plan in enumerate(new)] == before, (turn, old, new)
        last = int(max(recipe("GET key")[:19], recipe("GET key")[19:]))
        # The server's clock is in milliseconds.
        assert recipe("PTTL key") == -(-last // 10**6) - recipe.clock.now // 10**6
        old = new


def test_a_plan_that_cannot_change_stays_as_it_was(recipe, change):
    recipe("CL.THROTTLE carol 99 100 86400 80")
    recipe("CL.CHARGE dave 0 1000000000 1 10000000000000000")
    recipe("CL.CHARGE erin 99 100 86400 80 99 100 86400")
    for words, error in {
        "carol , 99 100 86400": "wrong number of arguments",
        "carol , 99 100 86400 to 9 10": "wrong number of arguments",
        "carol , 9.5 100 86400 to 9 10 86400": "max_burst is not an integer",
        "carol , 99 100 86400 to 9 10 1000000000000000": "at most 15 digits",
        "carol , 99 100 86400 to 0 1 99000000": "the tokens would be back only",
        "dave , 0 1000000000 1 to 9 10 86400": "more tokens are missing",
        # The second quota fails after the first one has moved.
        "erin , 99 100 86400 99 100 86400 to 9 10 86400 0 1 99000000": "the tokens would be back only",
    }.items():
        recipe.refuses(error, change, words)
    recipe("ACL SETUSER app -set")
    recipe.refuses("permission|can't run", change, "carol , 99 100 86400 to 9 10 86400")


def test_of_several_pauses_the_longest_counts_and_then_one_call_passes(recipe):
    # Workers are told to wait at different moments. The longest pause ends 61 s after the start.
    for second, pause in (0, 30_000), (1, 60_000), (2, 5_000), (3, 57_999):
        recipe.at(1_000 * second)
        recipe.ask(f"CL.PTAKE partner {pause + 899} 1 1 {pause + 900}")
    for milliseconds, passing in (-1, 0), (0, 1), (99, 0), (100, 1):
        recipe.at(61_000 + milliseconds)
        passed = [recipe.ask("CL.THROTTLE partner 9 10 1")[0] for _ in range(2)].count(0)
        assert passed == passing, milliseconds


def test_a_limiter_of_redis_rate_is_copied_only_if_both_keys_hold_one(recipe):
    copy = lambda words="rate key": recipe.eval("moving/from_redis_rate.lua", words)
    recipe.refuses("wrong number of arguments", copy, "rate key other")
    for moment in "7740143237", "inf":
        recipe("SET rate", moment)
        recipe.refuses("after the year 2262", copy)
    recipe("SET rate nan")
    assert copy() == 0 and recipe("EXISTS key") == 0
    # The last moment that a double can express.
    recipe("SET rate 7740143236.854")
    assert copy() == 1
    recipe("SET key -790000000123456789")
    recipe.refuses("the second key holds no rate limiter state", copy)
