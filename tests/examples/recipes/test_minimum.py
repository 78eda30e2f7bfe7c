"""Tests of docs/recipes/minimum.lua: each tenant gets its minimum, and the rest of the pool is lent."""

import pytest
import redis

# Each tenant's minimum: for a, 5 calls at once and 20 a second; for b, 10 at once and 50 a second; for none, nothing.
TENANTS = {"a": "4 20 1", "b": "9 50 1", "none": "-1 1 1"}
# All tenants together get 50 calls at once and 100 a second. Of the 50, the pool lends 35.
WHOLE, LENT = 50, "34 100 1"


@pytest.fixture
def ask(recipe):
    recipe.restrict("recipes/minimum.lua")
    return lambda tenant, words, minimum=None: recipe.eval(
        "recipes/minimum.lua", f"{tenant} pool , {minimum or TENANTS[tenant]} {words}")


def test_tenants_get_their_minimums_and_never_more_than_the_pool(recipe, ask):
    turn = passed = lowest = most = 0
    # Each of these groups of tenants makes calls for half a second, in turns of 10 ms. In each turn, one of the pool's
    # tokens comes back, and each tenant calls until it is refused.
    for tenants in ["a"], ["a", "none", "b"], ["none"], ["none", "a", "b"], ["b"]:
        before = passed
        for _ in range(50):
            recipe.at(10 * turn)
            for tenant in tenants:
                now = 0
                while ask(tenant, LENT)[0] == 0:
                    now += 1
                # A plain limiter with the tenant's numbers, the twin, shows how many calls the minimum must allow.
                assert now >= recipe(f"CL.TAKE {tenant}:twin {TENANTS[tenant]} 99")[0], (tenant, turn)
                passed += now
            # Find the largest number of calls in any span of time, minus the tokens that have come back within it.
            most = max(most, passed - turn - lowest)
            turn += 1
            lowest = min(lowest, passed - turn)
        # Together, the tenants use the whole pool. In the first half second, this includes the burst.
        assert passed - before == (35 + 49 if before == 0 else 50), tenants
    assert most == WHOLE


def test_a_limited_call_has_the_shorter_wait_of_the_minimum_and_the_pool(recipe, ask):
    recipe(f"CL.CHARGE pool {LENT} 1035")
    assert ask("a", LENT) == [0, 5, 4, -1, 1] and ask("a", f"{LENT} 4") == [0, 5, 0, -1, 1]
    # The pool has a debt of 1,005 tokens, but the minimum lacks only four, so the minimum's wait is shorter.
    assert ask("a", f"{LENT} 4") == [1, 5, 0, 1, 1]
    recipe.at(200)
    assert ask("a", f"{LENT} 4")[0] == 0
    # If one limiter could never allow the call, the reply has the other limiter's wait.
    assert ask("a", "3 100 1 5") == [1, 5, 0, 1, 1]
    assert ask("a", f"{LENT} 6") == ask("none", f"{LENT} 1") == [1, 35, 0, 10, 11]
    recipe.refuses("must have different keys", ask, "pool", LENT, TENANTS["a"])
    recipe("REPLICAOF 127.0.0.1 1")
    with pytest.raises(redis.ReadOnlyError):
        ask("a", LENT)
