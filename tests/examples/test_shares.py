"""The share of each whole example, in Python, Node.js and nginx, against a limiter for each key, in exact integers."""

import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys

from applications import named, on
from packages import ROOT
from servers import need

CLIENTS = ROOT / "docs/clients"
sys.path.insert(0, str(CLIENTS))

from limits import Share

# Quotas, processes, keys, and the longest pause between two calls in microseconds. Tokens that take no whole number of
# microseconds come first; then one case has more keys than places. In the others, a share refuses none wrongly.
SHARES = [
    ([[2, 300007, 1]], 2, 30_000, 1),
    ([[9, 300007, 1], [99, 700001, 3]], 2, 30_000, 1),
    ([[2, 1, 1]], 2, 200_000, 4),
    ([[9, 1, 1], [7, 1, 2]], 2, 2_000, 9_000),
    ([[8, 1, 60]], 4, 2_000, 60_000),
    # A share has at least a token: 65,536 callers who use all refuse no other.
    ([[0, 1, 86400]], 2, 65_536 + 1_000, 0),
]


def calls_of(keys, pause, most):
    """Makes calls at random: the moment of each in microseconds, its key and its quantity."""
    if not pause:
        return [(1, f"key{number}", 1) for number in range(keys)]
    chance = random.Random(1)
    moments = itertools.accumulate(chance.randint(0, pause) for _ in range(max(keys, 60_000)))
    key = lambda: f"key{chance.randrange(chance.choice([5, keys, keys, keys]))}"
    return [(now, key(), chance.randint(1, most)) for now in moments]


def hold(take, most=2, processes=None):
    """Holds what a share takes against the exact rule."""
    for quotas, divided, keys, pause in SHARES:
        calls, exact, wrongly = calls_of(keys, pause, most), {}, 0
        parts = processes or divided
        rules = [(count, parts * period * 10**6, max(1, (burst + 1) // parts)) for burst, count, period in quotas]
        taken = take(quotas, parts, calls)
        assert len(taken) == len(calls) and sum(taken) > len(calls) / 10
        for (now, key, quantity), is_taken in zip(calls, taken):
            before = exact.get(key, [0] * len(rules))
            after = [max(moment, now * count) + quantity * step for moment, (count, step, _) in zip(before, rules)]
            fits = all(moment - most * step <= now * count for moment, (count, step, most) in zip(after, rules))
            assert fits or not is_taken, f"{quotas}: {key} gets more than its share"
            if is_taken:
                exact[key] = after
            wrongly += fits and not is_taken
        assert not wrongly or keys > 2_000 and pause, f"{quotas}: {wrongly} calls of {len(calls)}"


def test_a_share_in_python_passes_nothing_beyond_its_part():
    def take(quotas, processes, calls):
        share = Share(quotas, processes)
        digest = lambda key: hashlib.sha256(key.encode()).digest()
        return [not share.take(digest(key), quantity, 1000 * now) for now, key, quantity in calls]

    hold(take)


# Prints whether a share takes each call of a file.
NODE = """const { Share } = require('./limits.js');
const [file, quotas, processes] = process.argv.slice(1);
const share = new Share(JSON.parse(quotas), Number(processes));
const calls = require('fs').readFileSync(file, 'utf8').split('\\n').map((line) => line.split(' '));
console.log(JSON.stringify(calls.map(([now, key, quantity]) => !share.take(key, Number(quantity), Number(now)))));"""


def written(calls, path):
    path.write_text("\n".join(" ".join(map(str, call)) for call in calls))
    return path


def test_a_share_in_node_passes_nothing_beyond_its_part(tmp_path):
    def take(quotas, processes, calls):
        words = ["node", "-e", NODE, written(calls, tmp_path / "calls"), json.dumps(quotas), str(processes)]
        return json.loads(subprocess.run(words, cwd=CLIENTS, capture_output=True, check=True).stdout)

    need("node", shutil.which("node"))
    hold(take)


@on(named("nginx"))
def test_a_share_in_nginx_passes_nothing_beyond_its_part(app, tmp_path):
    """A call of nginx is of one token, and two workers divide a limit."""

    def take(quotas, processes, calls):
        lua = json.dumps(quotas, separators=(",", ":")).translate({ord("["): "{", ord("]"): "}"})
        return json.loads(app.get(f"/exact?file={written(calls, tmp_path / 'calls')}&quotas={lua}").body)

    hold(take, most=1, processes=app.row.processes)
