"""Tests of docs/recipes/gcra.lua, CL.THROTTLE as a script: it must behave like the module."""

import pytest
import redis

SECOND = 10**9
FILE = "recipes/gcra.lua"


def any_length(chance, end):
    """Returns a random number from 0 to `end - 1`, often a small one."""
    return chance.getrandbits(chance.randrange(1, 64)) % (end if chance.random() < 0.3 else min(end, 40))


def quota(chance):
    while True:
        limit, count = any_length(chance, 2**31), 1 + any_length(chance, 9_000_000)
        period = 1 + any_length(chance, 2**21)
        # Leave out quotas whose tokens would not all be back before the year 2262: these are errors.
        if limit * period / count < 7e9:
            return limit - 1, count, period


def test_the_script_replies_and_stores_what_the_module_does(recipe, chance):
    seen = set()
    for _ in range(100):
        quotas = [quota(chance) for _ in range(chance.choice((1, 1, 2, 3, 5)))]
        recipe("DEL module script")
        if chance.random() < 0.25:
            # Start from a state that these calls cannot produce, with fractions of microseconds or a debt.
            ahead = [any_length(chance, 20_000 * SECOND) - 5_000 * SECOND for _ in range(chance.randrange(1, 8))]
            state = "".join(f"{recipe.clock.now + tat:019}" for tat in ahead)
            recipe("MSET", "module", state, "script", state)
        for _ in range(20):
            some = any_length(chance, 2**31)
            quantity = chance.choice((0, -some, some, quotas[0][0] + 1, 1, 1, 2))
            first, *further = quotas[:chance.randrange(1, len(quotas) + 1)]
            words = " ".join(map(str, (*first, quantity, *sum(further, ()))))
            script = recipe.eval(FILE, f"script , {words}"), recipe("GET script"), recipe("PTTL script")
            module = recipe(f"CL.THROTTLE module {words}"), recipe("GET module"), recipe("PTTL module")
            assert script == module, (recipe.clock.now, words)
            seen.add((module[0][0], *module[0][5:]))
            # Often move the clock to the end of the wait, but by at most 12 days.
            wait = min(max(module[0][3], 0), 2**20) * SECOND
            recipe.clock.set(recipe.clock.now + chance.choice((wait, any_length(chance, 2**31) * 1_000, 0, 0)))
    # Check that calls were allowed and limited in each way: by a single quota, and by the first and the second of
    # several.
    assert {(0,), (0, 1), (0, 2), (1,), (1, 1), (1, 2)} <= seen


def error_of(call, *words):
    with pytest.raises(redis.RedisError) as raised:
        call(*words)
    return str(raised.value).replace("'CL.THROTTLE'", "'cl.throttle'")


def test_the_script_refuses_what_the_module_refuses(recipe):
    timestamp = "1790000000123456789"
    recipe("RPUSH list 1")
    recipe("MSET", "letter", timestamp[:18] + "x", "long", timestamp + "0", "beyond", "9223372036854775808",
           "nine", 9 * timestamp, "second_beyond", timestamp + 19 * "9")
    for words in (
        "key 15 30", "key 15 30 60 0x1", "key 15 30 0", "key 99 1 99999999", "key 15 30 60 1 15 30 60 15 30 x",
        "key 15 30 60 1 9999999999 1 1", "key 15 30 60 1" + 8 * " 15 30 60", "list 15 30 60", "letter 15 30 60",
        "long 15 30 60", "beyond 15 30 60", "nine 15 30 60", "second_beyond 15 30 60 1 15 30 60",
    ):
        script = error_of(recipe.eval, FILE, words.replace(" ", " , ", 1))
        assert script == error_of(recipe, "CL.THROTTLE " + words), words


def test_the_script_is_exact_or_refuses(recipe):
    # The two TATs differ by a nanosecond, which costs a token. As doubles, they would be equal.
    for more, remaining in (0, 3), (1, 2):
        tat = recipe.clock.now + 700_000_000 * SECOND + more
        recipe("MSET", "module", tat, "script", tat)
        reply = recipe.eval(FILE, "script , 9 1 100000000 0")
        assert reply == recipe("CL.THROTTLE module 9 1 100000000 0") and reply[2] == remaining
    too_large = "15 9000001 9000001"
    for words in too_large, "9007199254740990 1 2", "15 30 60 -9007199254740991", f"0 1 1 1 {too_large}":
        recipe.refuses("too large for a script to be exact", recipe.eval, FILE, f"key , {words}")
    recipe.refuses("quantity is not an integer", recipe.eval, FILE, "key , 15 30 60 9007199254740993")


def test_the_script_looks_on_a_replica_with_the_permissions_in_its_first_lines(recipe):
    recipe.restrict("recipes/gcra.lua")
    call = lambda quantity: recipe.eval(FILE, f"key , 4 1 3600 {quantity}")
    assert [call(quantity)[2] for quantity in (1, -2, 3)] == [4, 5, 2]
    recipe("REPLICAOF 127.0.0.1 1")
    assert call(0)[:4] == [0, 5, 2, -1]
    with pytest.raises(redis.ReadOnlyError):
        call(1)
