"""The tables, in Markdown."""

from contestants import BASE


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def markdown(results):
    """The tables; a figure that makes no sense for a contestant is left out."""
    by_name, settings = results["contestants"], results["settings"]
    connections, at_once = settings["pipelined"]
    sizes = list(next(iter(results["growth"].values())))

    def rows(*columns):
        for name, figures in by_name.items():
            if any(key in figures for key, _ in columns):
                yield [name] + [form.format(figures[key]) if key in figures else "" for key, form in columns]

    instructions = table(
        ["one check", "nobody listens", "× SET PX", "with an AOF", "× SET PX there"],
        rows(
            ("instructions", "{:,.0f}"),
            ("instructions ratio", "{:.2f}"),
            ("listened instructions", "{:,.0f}"),
            ("listened instructions ratio", "{:.2f}"),
        ),
    )
    cpu = table(
        ["one check", "pipelined, ns", "× SET PX", "± half of the middle half", "× PING"]
        + ["one by one, ns", "× SET PX one by one"],
        rows(
            ("pipelined cpu", "{:,.0f}"),
            ("pipelined ratio", "{:.2f}"),
            ("pipelined half spread", "{:.2f}"),
            ("pings", "{:.2f}"),
            ("single cpu", "{:,.0f}"),
            ("single ratio", "{:.2f}"),
        ),
    )
    speed = table(
        ["one check", "a second, pipelined", "a second, one by one", "p50, µs", "p99, µs", "p99.9, µs"],
        rows(
            ("pipelined calls", "{:,.0f}"),
            ("single calls", "{:,.0f}"),
            ("p50", "{:,.0f}"),
            ("p99", "{:,.0f}"),
            ("p99.9", "{:,.0f}"),
        ),
    )
    weight = table(
        ["one key", "bytes after 1 call", "after 10 calls", "bytes replicated per call"],
        rows(("bytes after 1", "{:,.0f}"), ("bytes after 10", "{:,.0f}"), ("replicated", "{:,.0f}")),
    )
    growth = table(
        ["CPU per call, ns, and bytes per key", *("1 key" if size == "1" else f"{int(size):,} keys" for size in sizes)],
        [
            [name]
            + [
                f"{figures[size]['cpu']:,.0f}" + (f", {figures[size]['bytes']:,.0f} B" if int(size) >= 1000 else "")
                for size in sizes
            ]
            for name, figures in results["growth"].items()
        ],
    )
    about = "\n".join(f"* {key}: {value}" for key, value in results["about"].items())
    rough = "Rough, of one short round. " if settings["rounds"] == 1 else ""
    return f"""# What a check costs

{rough}Made by `{results["about"]["command"]}`:

{about}

The server has a core of its own, and so has the load. Medians of {settings["rounds"]} interleaved rounds of {settings["seconds"]} s, on {settings["keys"]:,} keys
of 13 bytes; ratios are to `SET key value PX ms` in the same round.

## Instructions

Those inside the server's function `call`, by callgrind, on {settings["counted keys"]} keys: where nobody listens to writes, and
with an append-only file, which is told of each as a replica would be.

{instructions}

### On each server

{servers(results["servers"]) if "servers" in results else "Not counted: see `scripts/bench --servers`."}

## CPU

The server's, per call, the network included, where nobody listens: pipelined, with {at_once} calls at once on each of
{connections} connections, and one by one on {settings["one by one"][0]} connections.

{cpu}

![CPU of the server per check](cost.svg)

## Speed

Pipelined as above; one by one on {settings["one by one"][0]} connections, each of which waits for its answer. Latencies are those one by
one, as the client sees them, the server being busy all the time.

{speed}

![Latency](latency.svg)

## Memory and replication

{weight}

![Memory and replication](weight.svg)

## Growth

{growth}

![Growth](growth.svg)

## One hot key

{leases(results["leases"])}
"""


def servers(results):
    """A line for each server: the base's instructions, and ratios to them."""

    def row(server, counts):
        ratios = [
            f"{counts[name][setting] / counts[BASE][setting]:.2f}" for setting, names in COLUMNS for name in names
        ]
        return [server, f"{counts[BASE][0]:,.0f}", *ratios[:5], f"{counts[BASE][1]:,.0f}", *ratios[5:]]

    heads = ["SET PX", "allowed", "limited", "new key", "(SET PX, new key)", "two limits"]
    heads = ["one server", *heads, "SET PX, AOF", "allowed, AOF", "new key, AOF", "two limits, AOF"]
    rows = table(heads, [row(*of) for of in results["counts"].items()])
    return f"""The instructions of a SET PX where nobody listens, and ratios to them; and then the same with an append-only file. By
{results["module"]}, on {results["date"]}.

{rows}"""


ALLOWED, NEW, TWO = "CL.THROTTLE allowed", "CL.THROTTLE new key", "CL.MTHROTTLE 2 limits allowed"
COLUMNS = [(0, [ALLOWED, "CL.THROTTLE limited", NEW, "SET PX, new key", TWO]), (1, [ALLOWED, NEW, TWO])]
ON_EACH_SERVER = [BASE, *COLUMNS[0][1]]


def leases(results):
    """One table, with how it came about."""
    rows = table(
        ["one hot key", "decisions a second", "× one by one", "calls to the server a second"],
        [
            [name, f"{of['decisions']:,.0f}", f"{of['ratio']:,.1f}", f"{of['calls']:,.0f}"]
            for name, of in results["ways"].items()
        ],
    )
    about, settings = results["about"], results["settings"]
    return f"""Decisions that allow: by calls of CL.THROTTLE as above, and by [a client](../../tests/clients/lease.rs) that takes leases of so
many tokens, on {settings["threads"]} threads that share {settings["threads"]} cores with the server. Medians of {settings["rounds"]} interleaved rounds of {settings["seconds"]} s, on
{about["machine"]}, with {about["server"]}, on {about["date"]}.

{rows}"""
