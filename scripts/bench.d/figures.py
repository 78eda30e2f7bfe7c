"""The measures: each returns figures by contestant."""

import datetime
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
from collections import namedtuple

from contestants import BASE, CONTESTANTS, GROWING, PEER_NAME
from places import ROOT, SERVER, say
from servers import ONE_BY_ONE, PIPELINED, Server, servers

KEYS = 10_000
COUNTED_KEYS = 300
# Rounds, how many keys to grow to and to weigh, and rounds there and on one hot key. Rounds are short and many: what
# else the machine does then meets few of them. And how often instructions are counted, of which the least is taken: into
# the others may fall the cron's tick, of which each call has a share that is far smaller where nobody counts.
Scale = namedtuple("Scale", "rounds seconds sizes memory_keys few_rounds long_seconds counts")
FULL = Scale(25, 0.3, [1, 1_000, 100_000, 1_000_000, 5_000_000], 100_000, 5, 1, 5)
QUICK = Scale(1, 0.2, [1, 1_000, 100_000], 5_000, 1, 0.2, 1)


def measure(scale):
    """All that tables and plots are made from."""
    parts = [measure_instructions(scale), measure_replication(), measure_memory(scale)]
    rounds = measure_time(scale)
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
        },
        "contestants": {c.name: {k: v for part in parts for k, v in part.get(c.name, {}).items()} for c in CONTESTANTS},
        "growth": measure_growth(scale),
        "rounds": rounds,
    }

def measure_time(scale):
    """CPU of the server and throughput, with and without pipelining, and latency: a list of the rounds' figures."""
    rounds = {c.name: [] for c in CONTESTANTS}
    with servers() as by_module:
        for number in range(scale.rounds):
            for contestant in CONTESTANTS:
                say(f"time, round {number + 1} of {scale.rounds}: {contestant.name}")
                figures = {}
                for kind, shape in (("pipelined", PIPELINED), ("single", ONE_BY_ONE)):
                    server = by_module[contestant.module]
                    server.prepare(contestant, KEYS)
                    cpu, load = run_for(server, contestant, KEYS, scale.seconds, shape)
                    share = load.limited / load.calls
                    # Of a take, the first integer is what was taken: 1.
                    ones = "limited" in contestant.name or "TAKE" in contestant.name
                    assert share > 0.99 if ones else share == 0, (contestant.name, share)
                    figures[f"{kind} cpu"] = cpu / load.calls * 1e9
                    figures[f"{kind} calls"] = load.calls / load.seconds
                figures |= {"p50": load.p50, "p99": load.p99, "p99.9": load.p999}
                rounds[contestant.name].append(figures)
    return rounds


def medians(rounds):
    """Of the figures, and of their ratios to the base."""
    result = {}
    for name, figures in rounds.items():
        result[name] = {key: statistics.median(round[key] for round in figures) for key in figures[0]}
        # Ratios within a round, in which the machine was the same for both.
        for kind in ("pipelined", "single"):
            ratios = [own[f"{kind} cpu"] / base[f"{kind} cpu"] for own, base in zip(figures, rounds[BASE])]
            result[name][f"{kind} ratio"] = statistics.median(ratios)
            # Of one round there is no spread.
            if len(ratios) > 1:
                first, _, third = statistics.quantiles(ratios, n=4)
                result[name][f"{kind} half spread"] = (third - first) / 2
        pings = [own["pipelined cpu"] / ping["pipelined cpu"] for own, ping in zip(figures, rounds["PING"])]
        result[name]["pings"] = statistics.median(pings)
    return result


def run_for(server, contestant, keys, seconds, shape=PIPELINED):
    """CPU seconds of the server, and what the load saw."""
    before = server.cpu()
    load = server.load(contestant.call, f"{seconds}s", keys, 0 if contestant.fresh else None, shape)
    return server.cpu() - before, load


def measure_instructions(scale, names=None):
    """Where nobody listens, and where an append-only file does; a replica would be told the same. Of all, or these."""
    result = {}
    for setting, arguments in (("", ()), ("listened ", ("--appendonly", "yes", "--appendfsync", "no"))):
        counted = count_instructions(setting, arguments, names, scale.counts)
        for name, count in counted.items():
            figures = result.setdefault(name, {})
            figures[f"{setting}instructions"] = count
            figures[f"{setting}instructions ratio"] = count / counted[BASE]
    return result


def count_instructions(setting, arguments, names, times):
    """Instructions inside the server's function `call`, what that calls included, by callgrind."""
    folder = tempfile.TemporaryDirectory(prefix="bench-counts-")
    out = f"{folder.name}/counts"
    # Each ECHO makes callgrind write a file and count from 0 again. A SERVER may be a script that runs the server.
    wrapper = ["valgrind", "--tool=callgrind", "--trace-children=yes", "--collect-atstart=no"]
    wrapper += ["--toggle-collect=processCommand", "--dump-before=echoCommand", f"--callgrind-out-file={out}.%p"]
    keys, files, result = COUNTED_KEYS, {}, {}
    # Under callgrind a second holds few calls, and the cron's share of each would be more than it is.
    with servers(*arguments, "--hz", "1", wrapper=wrapper) as by_module:
        for contestant in (c for c in CONTESTANTS if not names or c.name in names):
            say(f"{setting}instructions: {contestant.name}")
            server = by_module[contestant.module]
            server.client.flushall()
            # So many that the server's tables neither grow nor shrink while it counts, and often enough that they have
            # been rearranged before.
            for _ in range(3):
                server.load("SET KEY 1 PX 3600000", 4500, 1, 100_000)
            if not contestant.fresh:
                for call in [contestant.before or contestant.call] * 3 + [contestant.call]:
                    server.load(call, times * keys, keys, 0)
            counted = []
            for number in range(times):
                server.client.echo("before")
                server.load(contestant.call, keys, keys, number * keys)
                server.client.echo("after")
                files[contestant.module] = files.get(contestant.module, 0) + 2
                file = pathlib.Path(f"{out}.{server.process.pid}.{files[contestant.module]}")
                counted.append(inclusive(file, "processCommand", "call") / keys)
            result[contestant.name] = min(counted)
    return result


def inclusive(file, caller, callee):
    """The cost of all calls of one function by another, in a file of callgrind's."""
    names, current, called, total = {}, None, None, 0
    lines = iter(file.read_text().splitlines())
    for line in lines:
        if match := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line):
            kind, number, name = match.groups()
            # Named where it is first met. One that recurs, as `call` does in scripts, is numbered by depth: call'2.
            name = names.setdefault(number, name)
            current, called = (name, called) if kind == "fn" else (current, name)
        elif line.startswith("calls="):
            cost = next(lines).split()[1]
            if (current, called) == (caller, callee):
                total += int(cost)
    return total


def measure_memory(scale):
    """Bytes per key: used_memory with the keys less used_memory without."""
    result = {}
    with servers() as by_module:
        for contestant in CONTESTANTS:
            if contestant.before or "KEY" not in contestant.call:
                continue
            say(f"memory: {contestant.name}")
            server, figures, called = by_module[contestant.module], {}, 0
            server.client.flushall()
            empty = server.memory()
            for calls in (1, 10):
                while called < calls:
                    server.load(contestant.call, scale.memory_keys, scale.memory_keys, 0)
                    called += 1
                assert server.client.dbsize() >= scale.memory_keys, "keys have expired"
                time.sleep(0.2)  # what the connections of the load took is given back
                figures[f"bytes after {calls}"] = (server.memory() - empty) / scale.memory_keys
            result[contestant.name] = figures
    return result


def measure_replication():
    """Bytes per call that are sent to a replica."""
    result = {}
    with servers("--repl-diskless-sync-delay", "0") as by_module:
        for module, server in by_module.items():
            replica = Server(module, ["--replicaof", f"127.0.0.1 {server.port}"])
            while server.client.info("replication").get("slave0", {}).get("state") != "online":
                time.sleep(0.05)
            for contestant in (c for c in CONTESTANTS if c.module == module):
                say(f"replication: {contestant.name}")
                server.prepare(contestant, KEYS)
                before = server.replicated()
                server.load(contestant.call, KEYS, KEYS, 0)
                result[contestant.name] = {"replicated": (server.replicated() - before) / KEYS}
            replica.stop()
    return result


def measure_growth(scale):
    """CPU per call, pipelined, and memory, by the number of keys."""
    result = {}
    with servers() as by_module:
        for size in scale.sizes:
            for contestant in (c for c in CONTESTANTS if c.name in GROWING):
                say(f"growth, {size:,} keys: {contestant.name}")
                server = by_module[contestant.module]
                server.client.flushall()
                empty = server.memory()
                server.prepare(contestant, size)
                # A table that has grown is rearranged by those who use it.
                server.load("GET KEY", size, size, 0)
                costs = []
                for _ in range(scale.few_rounds):
                    cpu, load = run_for(server, contestant, size, scale.long_seconds)
                    costs.append(cpu / load.calls * 1e9)
                assert server.client.dbsize() == size, "keys have expired"
                memory = (server.memory() - empty) / size
                figures = {"cpu": statistics.median(costs), "low": min(costs), "high": max(costs), "bytes": memory}
                result.setdefault(contestant.name, {})[str(size)] = figures
    return result


def machine(server=SERVER):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    version = subprocess.run([server, "--version"], capture_output=True, text=True).stdout
    version = re.sub(r"(Redis|Valkey) server v=(\S+).*malloc=(\S+).*", r"\1 \2, \3", version.strip())
    return {
        "machine": f"{cpu[1] if cpu else os.uname().machine}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Linux {os.uname().release.split('-')[0]}",
        "server": version,
        "module": f"redis-cell {re.search('version = .(.*).', (ROOT / 'Cargo.toml').read_text())[1]}",
        "date": datetime.date.today().isoformat(),
    }
