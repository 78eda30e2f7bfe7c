"""The page of results."""

from checks import BASE


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def with_peer(results):
    """Yields each check's name and figures, and those of the base that was measured with it."""
    for part in (results, results["peer"]):
        for name, figures in part["checks"].items():
            if part is results or name != BASE:
                yield name, figures, part["checks"][BASE]


def instructions(results):
    heads = ["one check", "alone", "× SET PX", "with an AOF", "× SET PX there", "with a replica", "× SET PX there"]
    rows = []
    for name, figures, base in with_peer(results):
        counts = figures["instructions"]
        cells = [(f"{count:,.0f}", f"{count / base['instructions'][key]:.2f}") for key, count in counts.items()]
        rows.append([name, *(cell for pair in cells for cell in pair)])
    return table(heads, rows)


def speed(results):
    heads = ["one check, CPU", "ns, pipelined", "× SET PX"]
    rows = []
    for name, of, _ in with_peer(results):
        if "cpu" in of:
            rows.append([name, f"{of['cpu']:,.0f}", f"{of['ratio']:.2f}"])
    return table(heads, rows)


def markdown(results):
    about, peer = results["about"], results["peer"]["about"]
    most = round(1e9 / results["checks"]["CL.THROTTLE allowed"]["cpu"], -5)
    return f"""# What a check costs

Made by `scripts/bench`:

* machine: {about["machine"]}
* server: {about["server"]}
* module: {about["module"]}, compiled by Rust {about["rust"]}
* date: {about["date"]}
* the other module: measured on {peer["server"]}, on {peer["date"]}

A column "× SET PX" divides a figure by that of `SET key value PX ms`. A key's name has 13 bytes.

## Instructions

The instructions within the server's function `call`, counted by callgrind on 300 keys. They hardly vary from run to
run; the tests fail if a call takes 5% more. A server is "alone" if it has no append-only file (AOF), no replica, no
backlog kept for one, no cluster mode and no child process: it need not replicate a write. To replicate costs more than
to decide, for SET as well. A limited call and a look write nothing.

{instructions(results)}

## Speed

The CPU time that the server takes for a call, including the network. The server is alone, and has a core of its own,
as the load has. The calls are sent 64 at once, on each of 8 connections. The figures are medians of many rounds, in
each of which each check takes its turn, on 10,000 keys. A ratio compares two figures of the same round. An allowed call
sends a longer reply than a SET, and reads the clock.

{speed(results)}

So one core answers {most:,.0f} allowed calls a second. Sent one by one, from 50 connections, each takes 5.5 to
8.1 µs, as a SET does (5.4 to 8.3 µs): 120,000 to 180,000 calls a second, since the network takes most of the time
(`redis-benchmark -c 50`, on this kind of machine while it was busy, 2026-11-27).

## Memory

A key takes as many bytes as a SET of a text of 19 bytes, and 16 more for a second quota.
[Operating](../../docs/operating.md#memory) has the bytes for many keys.

## Other servers

An allowed call takes 0.87 to 0.99 of the instructions of a SET PX on Redis 8.10 and Valkey 8.0 and 9, and 1.46 on Redis
6.2; with an append-only file 1.07 to 1.20. A limited call takes 0.47 to 0.72. These were counted with redis-cell 1.0.0
on 2026-11-26, by `SERVER=… scripts/bench --check`.
"""
