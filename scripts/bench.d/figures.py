"""The measurements: each returns its figures by contestant."""

import contextlib
import datetime
import itertools
import os
import pathlib
import re
import statistics
import tempfile
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

from contestants import BASE, CONTESTANTS, PEER_NAME, chosen
from places import ROOT, SERVER, say
from servers import ONE_BY_ONE, PIPELINED, clock, servers, version

KEYS = 10_000
COUNTED_KEYS = 300
# Keys that serve for one call only are prepared and called this often in a pipelined round.
BATCHES = 2
# The amount of measuring; `sizes` and `memory_keys` are numbers of keys. Rounds are many and short, so that other work
# on the machine disturbs few of them. Instructions are counted `counts` times, and the least count is taken, because
# the server's cron may run during the others. callgrind slows the calls down, so the cron would weigh more than it does
# without callgrind.
Scale = namedtuple("Scale", "rounds seconds sizes memory_keys growth_rounds lease_rounds long_seconds counts")
FULL = Scale(25, 0.12, [1, 1_000, 100_000, 1_000_000, 5_000_000], 100_000, 9, 5, 0.3, 5)
QUICK = Scale(1, 0.2, [1, 1_000, 100_000], 5_000, 1, 1, 0.2, 1)

# The settings of a server alone, without replica and append-only file; with an append-only file; and with a replica.
SETTINGS = {"alone": [], "aof": ["--appendonly", "yes", "--appendfsync", "no"], "replica": []}


def measure(scale):
    """Measures everything that the tables and plots show."""
    parts = [measure_instructions(scale.counts), measure_replication(), measure_memory(scale.memory_keys)]
    timed = [c for c in CONTESTANTS if c.timed]
    rounds = measure_time(scale.rounds, scale.seconds, timed)
    parts.append(medians(rounds))
    return {
        "about": machine(),
        "settings": {
            "rounds": scale.rounds,
            "seconds": scale.seconds,
            "keys": KEYS,
            "counted keys": COUNTED_KEYS,
            "pipelined": PIPELINED,
            "one by one": ONE_BY_ONE,
            "base": BASE,
            "peer": PEER_NAME,
            "growth rounds": scale.growth_rounds,
        },
        "clock": statistics.median(clock() for _ in range(scale.rounds)),
        "contestants": {c.name: {k: v for part in parts for k, v in part.get(c.name, {}).items()} for c in CONTESTANTS},
        "growth": measure_growth(scale),
        "rounds": rounds,
    }


SHAPES = {"pipelined": PIPELINED, "single": ONE_BY_ONE}


def measure_time(rounds, seconds, contestants, kinds=("pipelined", "single"), executable=SERVER):
    """Measures the server's CPU, the throughput, and the latency of calls one by one. Returns the rounds' figures.

    All contestants take their turn in each round, so that the machine is in the same state for all of them.
    """
    result = {c.name: [] for c in contestants}
    with servers(contestants, executable=executable) as by_module:
        for number in range(rounds):
            say(f"time, round {number + 1} of {rounds}")
            for contestant in contestants:
                figures = {}
                for kind in kinds:
                    cpu, load = run_for(by_module[contestant.module], contestant, seconds, SHAPES[kind])
                    share = load.limited / load.calls
                    # The first integer of a reply to CL.TAKE is the number of tokens taken, which is 1.
                    ones = "limited" in contestant.name or "TAKE" in contestant.name
                    assert share > 0.99 if ones else share == 0, (contestant.name, share)
                    figures[f"{kind} cpu"] = cpu / load.calls * 1e9
                    figures[f"{kind} calls"] = load.calls / load.seconds
                    if kind == "single":
                        figures |= {"p50": load.p50, "p99": load.p99, "p99.9": load.p999}
                result[contestant.name].append(figures)
    return result


def run_for(server, contestant, seconds, shape):
    """Prepares keys, and runs the load on them. Returns the server's CPU seconds and the load program's figures."""
    if not contestant.once:
        server.prepare(contestant, KEYS)
        return cpu_of(server, lambda: server.load(contestant.call, f"{seconds}s", KEYS, shape=shape))
    batches = []
    for _ in range(BATCHES if shape == PIPELINED else 1):
        server.prepare(contestant, KEYS)
        batches.append(cpu_of(server, lambda: server.load(contestant.call, KEYS, KEYS, "each", shape)))
    cpus, loads = zip(*batches)
    # The latencies are those of the first batch.
    totals = {name: sum(getattr(load, name) for load in loads) for name in ("calls", "limited", "seconds")}
    return sum(cpus), loads[0]._replace(**totals)


def cpu_of(server, load):
    before = server.cpu()
    result = load()
    return server.cpu() - before, result


def medians(rounds):
    """Returns the medians of the figures, and of their ratios to the base's figures in the same round."""
    result = {}
    for name, figures in rounds.items():
        result[name] = {key: statistics.median(round[key] for round in figures) for key in figures[0]}
        for kind in SHAPES:
            if f"{kind} cpu" in figures[0]:
                ratios = [own[f"{kind} cpu"] / base[f"{kind} cpu"] for own, base in zip(figures, rounds[BASE])]
                result[name][f"{kind} ratio"] = statistics.median(ratios)
                result[name][f"{kind} middle half"] = middle_half(ratios)
    return result


def middle_half(values):
    """Returns the first and the third quartile."""
    if len(values) == 1:
        return values * 2
    first, _, third = statistics.quantiles(values, n=4)
    return [first, third]


def measure_instructions(counts):
    """Counts instructions of all contestants in each setting."""
    return measure_instructions_on([SERVER], counts, dict.fromkeys(SETTINGS))[SERVER]


def measure_instructions_on(executables, counts, names):
    """Counts instructions on each server, of the contestants whose names are given for each setting. Counts on all
    cores at once, which changes no count."""
    contestants = {setting: [c for c in chosen(names[setting]) if c.counted] for setting in names}
    jobs = list(itertools.product(executables, contestants))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counted = pool.map(lambda job: count_instructions(*job, contestants[job[1]], counts), jobs)
        result = {executable: {} for executable in executables}
        for (executable, setting), by_name in zip(jobs, counted):
            for name, count in by_name.items():
                result[executable].setdefault(name, {"instructions": {}})["instructions"][setting] = count
    return result


def count_instructions(executable, setting, contestants, counts):
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
            for number in range(counts):
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


def measure_memory(keys, names=None, executable=SERVER):
    """Measures the bytes per key after 1 and after 3 calls: used_memory with the keys, minus used_memory without."""
    result = {}
    contestants = [c for c in chosen(names) if not c.once and c.before == c.call and "KEY" in c.call]
    with servers(contestants, executable=executable) as by_module:
        for contestant in contestants:
            say(f"memory: {contestant.name}")
            server, figures, called = by_module[contestant.module], {}, 0
            # The server keeps some memory that it allocated for its first keys and connections. Allocate it before the
            # first figure, so that it is not counted.
            server.empty()
            server.load(contestant.call, keys, keys, 0)
            server.empty()
            time.sleep(0.2)
            empty = server.memory()
            for calls in (1, 3):
                while called < calls:
                    server.load(contestant.call, keys, keys, 0)
                    called += 1
                assert server.client.dbsize() >= keys, "keys have expired"
                time.sleep(0.2)  # the server frees the buffers of the load's connections
                figures[f"bytes after {calls}"] = (server.memory() - empty) / keys
            result[contestant.name] = figures
    return result


def measure_replication():
    """Measures the bytes per call that the server sends to a replica."""
    result = {}
    with servers(CONTESTANTS, replicas=True) as by_module:
        for contestant in CONTESTANTS:
            say(f"replication: {contestant.name}")
            server = by_module[contestant.module]
            server.prepare(contestant, KEYS)
            before = server.replicated()
            server.load(contestant.call, KEYS, KEYS, 0)
            result[contestant.name] = {"replicated": (server.replicated() - before) / KEYS}
    return result


# The contestants of a group share their keys: each leaves them in the state that the others need.
GROWING = [["GET", "SET PX"], ["CL.THROTTLE allowed", "CL.THROTTLE limited"]]


def measure_growth(scale):
    """Measures the CPU per pipelined call, and the memory, for each number of keys. All take turns in each round."""
    result = {}
    by_name = {c.name: c for c in CONTESTANTS}
    groups = [[by_name[name] for name in names] for names in GROWING]
    for size in scale.sizes:
        say(f"growth: {size:,} keys")
        with contextlib.ExitStack() as stack:
            turns = []
            for group in groups:
                server = stack.enter_context(servers(group))[None]
                empty = server.memory()
                # The second pass of calls finishes the rehashing of the table, which the first has made grow.
                for order in (0, "each"):
                    server.load(group[-1].before, size, size, order)
                memory = (server.memory() - empty) / size
                turns += [(server, contestant, memory) for contestant in group]
            rounds = {contestant.name: [] for _, contestant, _ in turns}
            for _ in range(scale.growth_rounds):
                for server, contestant, _ in turns:
                    cpu, load = cpu_of(server, lambda: server.load(contestant.call, f"{scale.long_seconds}s", size))
                    rounds[contestant.name].append(cpu / load.calls * 1e9)
            for server, contestant, memory in turns:
                assert server.client.dbsize() == size, "keys have expired"
                cpus = rounds[contestant.name]
                ratio = statistics.median(own / base for own, base in zip(cpus, rounds[BASE]))
                figures = {"cpu": statistics.median(cpus), "middle half": middle_half(cpus), "ratio": ratio}
                result.setdefault(contestant.name, {})[str(size)] = figures | {"bytes": memory, "rounds": cpus}
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


def name_of(executable):
    """Returns a name like "Redis 7.0.15"."""
    return machine(executable)["server"].split(",")[0]
