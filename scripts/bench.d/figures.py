"""The measurements: each returns its figures by contestant."""

import datetime
import itertools
import os
import pathlib
import re
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from contestants import BASE, CONTESTANTS, chosen
from places import ROOT, SERVER, say
from servers import ONE_BY_ONE, PIPELINED, servers, version

KEYS = 10_000
COUNTED_KEYS = 300
# Keys that serve for one call only are prepared and called this often in a pipelined round.
BATCHES = 2
# Rounds are many and short, so that other work on the machine disturbs few of them.
ROUNDS, SECONDS = 25, 0.12
MEMORY_KEYS = 100_000
# Instructions are counted this often, and the least count is taken: the server's cron may run during the others, and
# weighs more than it does without callgrind, which slows the calls down.
COUNTS = 5

# The settings of a server alone, without replica and append-only file; with an append-only file; and with a replica.
SETTINGS = {"alone": [], "aof": ["--appendonly", "yes", "--appendfsync", "no"], "replica": []}
SHAPES = {"pipelined": PIPELINED, "one by one": ONE_BY_ONE}
# The calls that are counted on each server.
EACH = ["CL.THROTTLE allowed", "CL.THROTTLE second call", "CL.THROTTLE limited", "CL.THROTTLE new key"]
EACH += ["CL.LOOK limited", "CL.THROTTLE 2 quotas allowed", "CL.THROTTLE 2 quotas limited"]
EACH += ["CL.MTHROTTLE 2 limiters allowed"]


def measure():
    """Measures all contestants on one server."""
    counted = measure_instructions([SERVER], dict.fromkeys(SETTINGS))[SERVER]
    speed = measure_speed([c for c in CONTESTANTS if c.timed])
    parts = [counted, measure_memory(), speed]
    return {
        "about": machine(),
        "settings": {"rounds": ROUNDS, "seconds": SECONDS, "keys": KEYS, "counted keys": COUNTED_KEYS} | SHAPES,
        "contestants": {c.name: {k: v for part in parts for k, v in part.get(c.name, {}).items()} for c in CONTESTANTS},
    }


def measure_servers(executables):
    """Counts the instructions on each server."""
    counted = measure_instructions(executables, {"alone": EACH, "aof": EACH})
    about = {executable: machine(executable) for executable in executables}
    by_server = {of["server"].split(",")[0]: counted[executable] for executable, of in about.items()}
    return {"about": machine(), "by server": by_server}


def measure_speed(contestants):
    """Measures the server's CPU time per pipelined call, and the calls a second. Returns medians; of the ratios to the
    base's CPU time in the same round, the median and the middle half.

    All contestants take their turn in each round, so that the machine is in the same state for all of them.
    """
    rounds = {c.name: [] for c in contestants}
    with servers(contestants) as by_module:
        for number in range(ROUNDS):
            say(f"speed, round {number + 1} of {ROUNDS}")
            for contestant in contestants:
                figures = {}
                for shape in SHAPES:
                    cpu, calls, limited, seconds = run_for(by_module[contestant.module], contestant, SHAPES[shape])
                    share = limited / calls
                    assert share > 0.99 if "limited" in contestant.name else share == 0, (contestant.name, share)
                    figures[shape] = calls / seconds
                    if shape == "pipelined":
                        figures["cpu"] = cpu / calls * 1e9
                rounds[contestant.name].append(figures)
    result = {}
    for name, figures in rounds.items():
        result[name] = {key: statistics.median(round[key] for round in figures) for key in figures[0]}
        ratios = [own["cpu"] / base["cpu"] for own, base in zip(figures, rounds[BASE])]
        result[name]["ratio"] = statistics.median(ratios)
        result[name]["middle half"] = statistics.quantiles(ratios, n=4)[::2]
    return result


def run_for(server, contestant, shape):
    """Prepares keys, and runs the load on them. Returns the server's CPU seconds, then the figures of the load."""
    if not contestant.once:
        server.prepare(contestant, KEYS)
        return cpu_of(server, lambda: server.load(contestant.call, f"{SECONDS}s", KEYS, shape=shape))
    batches = []
    for _ in range(BATCHES if shape == PIPELINED else 1):
        server.prepare(contestant, KEYS)
        batches.append(cpu_of(server, lambda: server.load(contestant.call, KEYS, KEYS, "each", shape)))
    return map(sum, zip(*batches))


def cpu_of(server, load):
    before = server.cpu()
    result = load()
    return server.cpu() - before, *result


def measure_instructions(executables, names):
    """Counts instructions on each server, of the contestants whose names are given for each setting. Counts on all
    cores at once, which changes no count."""
    contestants = {setting: [c for c in chosen(names[setting]) if c.counted] for setting in names}
    jobs = list(itertools.product(executables, contestants))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counted = pool.map(lambda job: count_on(*job, contestants[job[1]]), jobs)
        result = {executable: {} for executable in executables}
        for (executable, setting), by_name in zip(jobs, counted):
            for name, count in by_name.items():
                result[executable].setdefault(name, {"instructions": {}})["instructions"][setting] = count
    return result


def count_on(executable, setting, contestants):
    """Counts a call's instructions by callgrind, in the server's function `call` and in all functions that it calls."""
    folder = tempfile.TemporaryDirectory(prefix="bench-counts-")
    out = f"{folder.name}/counts"
    # Each ECHO makes callgrind write a file and count from 0 again. SERVER may be a shell script, so callgrind traces
    # its children as well.
    wrapper = ["valgrind", "--tool=callgrind", "--trace-children=yes", "--collect-atstart=no"]
    wrapper += ["--toggle-collect=processCommand", "--dump-before=echoCommand", f"--callgrind-out-file={out}.%p"]
    # Let the cron run only once a second: callgrind slows the calls down, and each would get a large share of the cron.
    arguments = [*SETTINGS[setting], "--hz", "1"]
    keys, files, result = COUNTED_KEYS, {}, {}
    replicas = setting == "replica"
    with servers(contestants, *arguments, executable=executable, wrapper=wrapper, replicas=replicas) as by_module:
        for server in by_module.values():
            # These keys are enough to keep the server's tables of keys and of expiries from growing or shrinking during
            # the count. The repeated calls finish the rehashing of both tables.
            for _ in range(3):
                server.load("SET KEY 1 PX 3600000", 4500, 1, 100_000)
        for contestant in contestants:
            say(f"instructions, {version(executable).split(' sha=')[0]}, {setting}: {contestant.name}")
            server = by_module[contestant.module]
            own = [word for word in contestant.call.split() if word.startswith("KEY")] or ["KEY"]
            counted = []
            for number in range(COUNTS):
                if contestant.once or number == 0:
                    server.load(f"DEL {' '.join(own)}", keys, keys, 0)
                    for _ in range(contestant.times):
                        server.load(contestant.before, keys, keys, 0)
                    time.sleep(0.005)  # lets the short-lived keys expire
                server.client.echo("before")
                server.load(contestant.call, keys, keys, 0)
                server.client.echo("after")
                files[contestant.module] = files.get(contestant.module, 0) + 2
                file = pathlib.Path(f"{out}.{server.process.pid}.{files[contestant.module]}")
                counted.append(inclusive(file, "processCommand", "call") / keys)
            server.load(f"DEL {' '.join(own)}", keys, keys, 0)
            result[contestant.name] = min(counted)
    return result


def inclusive(file, caller, callee):
    """Sums up, from a file that callgrind has written, the cost of the caller's calls of the callee."""
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
            if (current, called) == (caller, callee):
                total += int(cost)
    return total


def measure_memory():
    """Measures the bytes per key after 1 and after 3 calls: used_memory with the keys, minus used_memory without."""
    result = {}
    contestants = [c for c in CONTESTANTS if not c.once and c.before == c.call and "KEY" in c.call]
    with servers(contestants) as by_module:
        for contestant in contestants:
            say(f"memory: {contestant.name}")
            server, figures, called = by_module[contestant.module], {}, 0
            # The server keeps some memory that it allocated for its first keys and connections. Allocate it before the
            # first figure, so that it is not counted.
            server.empty()
            server.load(contestant.call, MEMORY_KEYS, MEMORY_KEYS, 0)
            server.empty()
            time.sleep(0.2)
            empty = server.memory()
            for calls in (1, 3):
                while called < calls:
                    server.load(contestant.call, MEMORY_KEYS, MEMORY_KEYS, 0)
                    called += 1
                assert server.client.dbsize() >= MEMORY_KEYS, "keys have expired"
                time.sleep(0.2)  # the server frees the buffers of the load's connections
                figures[f"bytes after {calls}"] = (server.memory() - empty) / MEMORY_KEYS
            result[contestant.name] = figures
    return result


def machine(executable=SERVER):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    server = re.sub(r"(Redis|Valkey) server v=(\S+).*malloc=(\S+).*", r"\1 \2, \3", version(executable))
    return {
        "machine": f"{cpu[1] if cpu else os.uname().machine}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Linux {os.uname().release.split('-')[0]}",
        "server": server,
        "module": f"redis-cell {re.search('version = .(.*).', (ROOT / 'Cargo.toml').read_text())[1]}",
        "date": datetime.date.today().isoformat(),
    }

