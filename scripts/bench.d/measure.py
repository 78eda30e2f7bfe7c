"""The measurements: each returns its figures by check."""

import contextlib
import datetime
import itertools
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from checks import BASE, CHECKS, PEERS
from server import ROOT, Server, version, wait

# The settings of a server alone, without replica and append-only file; with an append-only file; and with a replica.
SETTINGS = {"alone": [], "aof": ["--appendonly", "yes", "--appendfsync", "no"], "replica": []}
COUNTED_KEYS = 300
# Instructions are counted this often on this many servers, and the least count is taken: a server's cron may run during
# the others, and weighs more than it does without callgrind, which slows the calls down; and each server draws a seed of
# its own for its hash tables.
COUNTS, SERVERS = 2, 5
KEYS, CALLS, ROUNDS = 10_000, 50_000, 15
# So many that each call draws a new key: as many as redis-benchmark can draw from.
NEW_KEYS = 2**31 - 1


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def about(executable):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "machine": f"{cpu[1] if cpu else os.uname().machine}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Linux {os.uname().release.split('-')[0]}",
        "server": re.sub(r"(Redis|Valkey) server v=(\S+).*malloc=(\S+).*", r"\1 \2, \3", version(executable)),
        "module": f"redis-cell {re.search('version = .(.*).', (ROOT / 'Cargo.toml').read_text())[1]}",
        "rust": subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True).stdout.split()[1],
        "date": datetime.date.today().isoformat(),
    }


def costs(executable, peer=None):
    """Measures all checks of this module, or those of a peer under its own name."""
    names = PEERS if peer else list(CHECKS)
    figures = {name: {"instructions": {}} for name in names}
    # All cores count at once, which changes no count.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counted = pool.map(lambda setting: instructions(executable, setting, names, peer), SETTINGS)
    for setting, counts in zip(SETTINGS, counted):
        for name, count in counts.items():
            figures[name]["instructions"][setting] = count
    for name, timed in speed(executable, [name for name in names if CHECKS[name].timed], peer).items():
        figures[name] |= timed
    return {name.replace("CL.THROTTLE", pathlib.Path(peer).stem) if peer else name: figures[name] for name in names}


def instructions(executable, setting, names, module=None):
    """Returns the fewest instructions that checks and the base took on any of several servers."""
    counts = [count(executable, setting, names, module) for _ in range(SERVERS)]
    return {name: min(of[name] for of in counts) for name in counts[0]}


def count(executable, setting, names, module):
    """Counts the instructions of checks and of the base with callgrind: those in the server's function `call` and in all
    functions that it calls."""
    result, files = {}, itertools.count(1)
    with contextlib.ExitStack() as ends:
        out = ends.enter_context(tempfile.TemporaryDirectory(prefix="bench-counts-")) + "/counts"
        # Each ECHO makes callgrind write a file and count from 0 again. SERVER may be a shell script, so callgrind
        # traces its children as well.
        wrapper = ["valgrind", "--tool=callgrind", "--trace-children=yes", "--collect-atstart=no"]
        wrapper += ["--toggle-collect=processCommand", "--dump-before=echoCommand", f"--callgrind-out-file={out}.%p"]
        # Let the cron run only once a second: callgrind slows the calls down, and each would get a large share of it.
        server = ends.enter_context(Server(executable, module, [*SETTINGS[setting], "--hz", "1"], wrapper))
        if setting == "replica":
            ends.enter_context(Server(executable, module, ["--replicaof", "127.0.0.1", str(server.port)]))
            wait("a replica", lambda: server.client.info("replication")["slave0"]["state"] == "online")
        # These keys are enough to keep the server's tables of keys and of expiries from growing or shrinking during
        # the count. The repeated calls finish the rehashing of both tables.
        server.call([CHECKS[BASE].call] * 3, 4500, first=100_000)
        for name in dict.fromkeys([BASE, *names]):
            say(f"instructions, {version(executable).split(' sha=')[0]}, {setting}: {name}")
            check, counted = CHECKS[name], []
            for number in range(COUNTS):
                if check.once or number == 0:
                    server.call(["DEL KEY KEY:b"], COUNTED_KEYS)
                    server.call(check.before, COUNTED_KEYS)
                    time.sleep(0.005)  # lets the short-lived keys expire
                server.client.echo("before")
                server.call([check.call], COUNTED_KEYS)
                server.client.echo("after")
                next(files)
                counted.append(inclusive(pathlib.Path(f"{out}.{server.process.pid}.{next(files)}")) / COUNTED_KEYS)
            server.call(["DEL KEY KEY:b"], COUNTED_KEYS)
            result[name] = min(counted)
    return result


def inclusive(file):
    """Sums up, from a file that callgrind has written, the cost of all calls of `call` by `processCommand`."""
    names, current, called, total = {}, None, None, 0
    lines = iter(file.read_text().splitlines())
    for line in lines:
        if match := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line):
            kind, number, name = match.groups()
            # A name follows only its first mention. callgrind numbers a recursive function by depth, like call'2.
            name = names.setdefault(number, name)
            current, called = (name, called) if kind == "fn" else (current, name)
        elif line.startswith("calls="):
            cost = next(lines).split()[1]
            if (current, called) == ("processCommand", "call"):
                total += int(cost)
    return total


def speed(executable, names, module=None):
    """Measures the server's CPU time for a call. All checks take their turn in each round, so that the machine is in
    the same state for all of them. Returns medians: the nanoseconds, and the ratio to the base."""
    rounds = {name: [] for name in names}
    with Server(executable, module) as server:
        for number in range(ROUNDS):
            say(f"speed, round {number + 1} of {ROUNDS}")
            for name in names:
                check = CHECKS[name]
                # Without SYNC, Valkey 9 would free the keys later, in another thread.
                server.client.execute_command("FLUSHALL", "SYNC")
                server.call(check.before, KEYS)
                rounds[name].append(server.benchmark(check.call, NEW_KEYS if check.once else KEYS, CALLS) * 1e9)
                first = server.call([check.call], 1)[0]
                assert (type(first) is list and first[0] == 1) == ("limited" in name), (name, first)
    result = {}
    for name, cpu in rounds.items():
        ratios = [own / base for own, base in zip(cpu, rounds[BASE])]
        result[name] = {"cpu": statistics.median(cpu), "ratio": statistics.median(ratios)}
    return result
