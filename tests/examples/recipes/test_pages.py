"""Tests that the function calls on the pages get the replies shown after them."""

import re

import pytest

from conftest import DOCS

# Noon on 22 November 2026 in Berlin: the pages assume that their calls are made at this time.
NOON = 1_795_345_200


def flat(reply):
    return [integer for part in reply for integer in flat(part)] if isinstance(reply, list) else [reply]


@pytest.mark.parametrize("page", ["recipes.md", "budgets.md"])
def test_the_function_calls_get_the_replies_that_follow_them(recipe, page):
    recipe.clock.set(NOON * 10**9)
    for library in "recipes/calendar_quota.lua", "recipes/credits.lua", "budgets/reservation.lua":
        recipe.load(library)
    calls = []
    for section in (DOCS / page).read_text().split("\n## "):
        recipe("FLUSHALL")
        for call, reply in re.findall(r"^    (\S.*?)   ->   (.*)$", section, re.M):
            assert flat(recipe(call)) == [*map(int, re.findall(r"-?\d+", reply))], call
            calls.append(call)
    assert calls
