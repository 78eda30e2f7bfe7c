"""Tests that the function calls on the pages get the replies shown after them."""

import re
import subprocess

import pytest

from conftest import DOCS


def flat(reply):
    return [integer for part in reply for integer in flat(part)] if isinstance(reply, list) else [reply]


@pytest.mark.parametrize("page", ["recipes.md", "budgets.md"])
def test_the_function_calls_get_the_replies_that_follow_them(recipe, page):
    """In a line for the shell, the reply is a comment, and `date` must show the time of the server's clock."""
    clock = f"date() {{ echo {recipe.clock.now // 10**9}; }}\n"
    for library in "recipes/calendar_quota.lua", "recipes/credits.lua", "budgets/reservation.lua":
        recipe.load(library)
    calls = []
    for section in (DOCS / page).read_text().split("\n## "):
        recipe("FLUSHALL")
        before = clock + "".join(re.findall(r"^    now=.*\n", section, re.M))
        for call, reply in re.findall(r"^    (\S.*?)   (?:->  |#) (.*)$", section, re.M):
            if call.startswith("redis-cli "):
                call = subprocess.check_output(["bash", "-euc", f"{before}echo {call}"], text=True).split(" ", 1)[1]
            assert flat(recipe(call)) == [*map(int, re.findall(r"-?\d+", reply))], call
            calls.append(call)
    assert calls
