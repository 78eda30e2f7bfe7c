"""Tests of the recipes that consist of calls alone: what they promise. Other tests check the replies on the pages."""

import re

from conftest import DOCS


def section(heading, page="recipes.md"):
    return (DOCS / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_a_limit_that_is_tried_first_has_an_event_for_each_call_that_it_would_refuse(recipe):
    recipe("CONFIG SET notify-keyspace-events Ed")
    events = recipe.server.client.pubsub(ignore_subscribe_messages=True)
    events.subscribe("__keyevent@0__:cl.limited")
    call = re.search("^CL.*", section("Try a limit first"), re.M)[0]
    limited = [recipe(call)[0] for _ in range(13)]
    recipe("PUBLISH __keyevent@0__:cl.limited last")
    heard = iter(lambda: (events.get_message(timeout=60) or {}).get("data"), "last")
    assert [key for key in heard if key] == sum(limited) * ["trial:user123"] and sum(limited) == 3


def test_a_circuit_breaker_opens_after_five_failures_and_after_12_s_until_the_next_failure(recipe):
    look, fails, _ = (line.split("   ->")[0] for line in re.findall("^CL.*", section("A circuit breaker"), re.M))
    is_open = lambda: recipe(look)[0] == 1
    fails = fails.rsplit(" ", 1)[0] + " 1"
    for _ in range(5):
        assert not is_open()
        recipe(fails)
    # A call that was under way when the breaker opened fails, too. This does not make the pause longer.
    recipe(fails)
    for milliseconds, expected in (0, True), (11_999, True), (12_000, False), (13_000, False):
        recipe.at(milliseconds)
        assert is_open() == expected, milliseconds
    recipe(fails)
    assert is_open()


def passing(recipe, quota, milliseconds, step):
    """Makes calls at each step until one is refused. Returns the time of each allowed call, in milliseconds."""
    times = []
    for now in range(0, milliseconds, step):
        recipe.at(now)
        while recipe(f"CL.THROTTLE key {quota}")[0] == 0:
            times.append(now)
    return times


def test_half_the_burst_and_half_the_rate_are_a_hard_cap(recipe):
    assert len(passing(recipe, "59 60 60", 60_000, 500)) == 119
    recipe("DEL key")
    times = passing(recipe, "29 30 60", 200_000, 1_000)
    assert max(sum(0 <= time - start <= 60_000 for time in times) for start in times) == 60


def test_after_a_change_of_plan_the_tokens_are_back_at_the_same_time(recipe):
    recipe("CL.THROTTLE key 9 10 86400 8")
    assert recipe("CL.LOOK key 99 100 86400")[2] == 20
    recipe("CL.THROTTLE slow 2 1 86400 3")
    assert recipe("CL.LOOK slow 299 600 3600")[4] == 3 * 86_400


def test_clients_with_leases_use_the_burst_and_the_rate_and_at_most_a_batch_each_beyond(recipe, chance):
    """Four clients take batches of 20 tokens, spend these on their callers, and give the rest back after 50 ms."""
    quota, batch = "99 1 1", 20
    clients = [{"left": 0, "ends": 0, "ask": 0} for _ in range(4)]
    spent = lowest = beyond = 0
    for now in range(4_000):
        recipe.at(now)
        lowest = min(lowest, spent - now)
        for client in clients:
            if client["left"] and now >= client["ends"]:
                recipe(f"CL.PTHROTTLE hot {quota} -{client['left']}")
                client.update(left=0, ask=now)
            # In the first half of each second, there are few callers, and in the second half many.
            for _ in range(50 if now % 1_000 > 500 else chance.random() < 0.02):
                if not client["left"] and now >= client["ask"]:
                    taken, _, _, retry_after, _ = recipe(f"CL.PTAKE hot {quota} {batch}")
                    client.update(left=taken, ends=now + 50, ask=now + max(retry_after, 0))
                if client["left"]:
                    client["left"] -= 1
                    spent += 1
        # Find the largest number of tokens spent in any span of time, minus those that have come back within it.
        beyond = max(beyond, spent - now - lowest)
        assert spent <= 100 + now
    # In the second half of each second, the many callers spend every token that comes back: 2,000 in all.
    assert 100 < beyond <= 100 + len(clients) * batch and spent > 2_000


def test_of_several_pauses_the_longest_counts_and_then_one_call_passes(recipe):
    # Workers learn at different times that they must pause. The pause that ends last ends 61 s after the start.
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
    # This is just before the latest time that CL.THROTTLE supports.
    recipe("SET rate 7740143236.854")
    assert copy() == 1
    recipe("SET key -790000000123456789")
    recipe.refuses("the second key holds no rate limiter state", copy)
