"""The function calls on the pages get the replies that follow them, and the shell commands run."""

import re
import subprocess
import time

import pytest

from conftest import DOCS

# Noon on 22 November 2026 in Berlin, when the pages' calls are made.
NOON = 1_795_345_200


def flat(reply):
    return [integer for part in reply for integer in flat(part)] if isinstance(reply, list) else [reply]


@pytest.mark.parametrize("page", ["recipes.md", "budgets.md"])
def test_the_function_calls_get_the_replies_that_follow_them(recipe, page):
    recipe.clock.set(NOON * 10**9)
    for library in "recipes/calendar_quota.lua", "recipes/credits.lua", "budgets/reservation.lua":
        recipe.load(library)
    calls = 0
    for section in (DOCS / page).read_text().split("\n## "):
        recipe("FLUSHALL")
        for call, reply in re.findall(r"^    (\S.*?)   ->   (.*)$", section, re.M):
            assert flat(recipe(call)) == [*map(int, re.findall(r"-?\d+", reply))], call
            calls += 1
    assert calls > 6


def test_the_shell_commands_compute_the_ends_of_today_and_of_the_month(recipe, clock):
    # They use the real time, so set the server's clock to it.
    clock.set(time.time_ns())
    recipe.load("recipes/calendar_quota.lua")
    (lines,) = re.findall(r"```sh\n(today=.*?)```", (DOCS / "recipes.md").read_text(), re.S)
    lines = lines.replace("redis-cli", f"redis-cli -p {recipe.server.port}")
    reply = subprocess.run(["bash", "-ec", lines], stdout=subprocess.PIPE, text=True, check=True).stdout
    limited, _, quota, left, wait, day, _, monthly, _, _, month, *_ = map(int, reply.split())
    assert [limited, quota, left, wait, monthly] == [0, 100, 99, -1, 1000]
    assert 0 < day <= 25 * 3600 and day <= month <= 32 * 86_400
