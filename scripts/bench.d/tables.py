"""The tables, in Markdown. Each has a head that no other has: `renewed` finds a page's tables by their heads."""

import textwrap

from contestants import BASE


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def renewed(page, results):
    """Returns the page with the rows of the results in each table that both have."""
    blocks = ("\n".join(block) for block in split(results) if block[0].startswith("| "))
    known = {block.split("\n")[0]: {row.split("|")[1]: row for row in block.split("\n")} for block in blocks}
    lines = []
    for block in split(page):
        rows = known.get(block[0])
        if not rows:
            lines += block
        elif block[0].startswith("| one server"):
            lines += rows.values()  # replaces all rows, because servers come and go
        else:
            lines += [rows.get(line.split("|")[1], line) for line in block]
    return "\n".join(lines) + "\n"


def split(text):
    """Returns the text's lines in blocks: a table is one block, and each other line is one."""
    blocks = []
    for line in text.splitlines():
        if line.startswith("| ") and blocks and blocks[-1][0].startswith("| "):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return blocks


def wrapped(page):
    """Returns the page with paragraphs of 120 letters a line. Headings, lists, tables and pictures stay as they are."""
    blocks = page.split("\n\n")
    return "\n\n".join(b if b[0] in "#*|!" else textwrap.fill(b, 120, break_on_hyphens=False) for b in blocks)


def markdown(results):
    """Returns the page of results, with all tables. A cell is empty if its figure makes no sense for a contestant."""
    by_name, settings, about = results["contestants"], results["settings"], results["about"]
    connections, at_once = settings["pipelined"]
    base = by_name[BASE]["instructions"]

    def rows(names, *columns):
        for name in names:
            cells = [column(by_name[name]) for column in columns]
            if any(cells):
                yield [name, *cells]

    instructions = table(
        ["one check", "alone", "× SET PX", "with an AOF", "× SET PX there", "with a replica", "× SET PX there"],
        rows(
            by_name,
            *(
                column
                for setting in base
                for column in (
                    lambda of, setting=setting: f"{of['instructions'][setting]:,.0f}" if "instructions" in of else "",
                    lambda of, setting=setting: f"{of['instructions'][setting] / base[setting]:.2f}"
                    if "instructions" in of
                    else "",
                )
            ),
        ),
    )
    cpu_rows = list(
        rows(
            by_name,
            figure("pipelined cpu"),
            figure("pipelined ratio", "{:.2f}"),
            figure("single cpu"),
            figure("single ratio", "{:.2f}"),
        )
    )
    clock = results["clock"]
    of_base = f"{clock / by_name[BASE]['pipelined cpu']:.2f}"
    cpu_rows.append(["reading the clock once", f"{clock:,.0f}", of_base, "", ""])
    cpu = table(["one check", "ns of CPU, pipelined", "× SET PX", "ns, one by one", "× SET PX one by one"], cpu_rows)
    spread = table(
        ["one check, the middle half of the rounds", "× SET PX, pipelined", "one by one"],
        rows(by_name, halves("pipelined middle half"), halves("single middle half")),
    )
    weight = table(
        ["one key", "bytes after 1 call", "after 3 calls", "bytes replicated per call"],
        rows(by_name, *map(figure, ("bytes after 1", "bytes after 3", "replicated"))),
    )
    sizes = list(next(iter(results["growth"].values())))

    def grown(head, cell):
        heads = [head, *("1 key" if size == "1" else f"{int(size):,} keys" for size in sizes)]
        return table(heads, [[name, *(cell(of[size]) for size in sizes)] for name, of in results["growth"].items()])

    with_spread = lambda of: "{:,.0f} ({:,.0f}–{:,.0f})".format(of["cpu"], *of["middle half"])
    growth = [
        grown("one check among many keys, ns", with_spread),
        grown("one check among many keys, × SET PX", lambda of: f"{of['ratio']:.2f}"),
        grown("one key among many, bytes", lambda of: f"{of['bytes']:,.0f}" if of["bytes"] < 1000 else ""),
    ]
    lines = "\n".join(f"* {key}: {value}" for key, value in about.items())
    rough = "These figures are rough: they are of one short round. " if settings["rounds"] == 1 else ""
    return wrapped(f"""# What a check costs

{rough}Made by `{about["command"]}`:

{lines}

The server has a core of its own, and so has the load. Times and speeds are medians of {settings["rounds"]} rounds. In
each round, each check runs for {settings["seconds"]} s on {settings["keys"]:,} keys of 13 bytes; a check that needs
another key for each call calls all keys once. A column "× SET PX" divides a figure by that of `SET key value PX ms` in
the same round.

## Instructions

The instructions within the server's function `call`, counted by callgrind on {settings["counted keys"]} keys. A server
that is "alone" has neither a replica nor an append-only file (AOF). "Funnel in Lua, hash" is a token bucket that a
script keeps in a hash.

{instructions}

## CPU

The CPU time that the server takes for a call, including the network. The server is alone. Pipelined calls are sent
{at_once} at once, on each of {connections} connections. Calls one by one are sent on {settings["one by one"][0]}
connections, each of which waits for its answer.

{cpu}

{spread}

![CPU of the server per check](cost.svg)

## Speed

The calls that one server answers in a second, sent as above. The latencies p50, p99 and p99.9 are those of calls one by
one, as the client sees them while the server is busy all the time.

{speed("one check", by_name)}

![Latency](latency.svg)

## Memory and replication

{weight}

![Memory and replication](weight.svg)

## Growth

The CPU time of pipelined calls, and the memory of a key, for each number of keys. The brackets hold the middle half of
{settings["growth rounds"]} rounds.

{growth[0]}

{growth[1]}

{growth[2]}

![Growth](growth.svg)

## On each server

{servers(results["servers"]) if "servers" in results else "Not measured: see `scripts/bench --servers`."}

## One hot key

{leases(results["leases"])}
""")


def figure(key, form="{:,.0f}"):
    return lambda of: form.format(of[key]) if key in of else ""


def halves(key):
    return lambda of: "{:.2f}–{:.2f}".format(*of[key]) if key in of else ""


def speed(head, by_name):
    columns = [figure(key) for key in ("pipelined calls", "single calls", "p50", "p99", "p99.9")]
    heads = [head, "a second, pipelined", "a second, one by one", "p50, µs", "p99, µs", "p99.9, µs"]
    return table(heads, [[name, *(column(of) for column in columns)] for name, of in by_name.items() if "p50" in of])


ALLOWED = "CL.THROTTLE allowed"
# The columns of the tables that have a line for each server.
STEADY = {
    "allowed": ALLOWED,
    "second call": "CL.THROTTLE second call",
    "limited": "CL.THROTTLE limited",
    "second call, limited": "CL.THROTTLE second call, limited",
    "look": "CL.LOOK limited",
}
QUOTAS = {
    "two quotas": "CL.THROTTLE 2 quotas allowed",
    "two quotas, limited": "CL.THROTTLE 2 quotas limited",
    "three quotas": "CL.THROTTLE 3 quotas allowed",
}
TWO = {"two limiters": "CL.MTHROTTLE 2 limiters allowed"}
SET_NEW = {"SET PX, new key": "SET PX, new key"}
NEW = {"new key": "CL.THROTTLE new key"}
ANEW = SET_NEW | NEW | {"SET PX, expired key": "SET PX, expired key", "expired key": "CL.THROTTLE expired key"}
WRITES = {name: STEADY[name] for name in ("allowed", "second call")} | NEW
WRITES |= {"expired key": "CL.THROTTLE expired key", "two quotas": "CL.THROTTLE 2 quotas allowed"} | TWO


def servers(results):
    """Returns the tables with a line for each server: the cost of the base, and the ratios to it."""
    by_server = {server: of["contestants"] for server, of in results["by server"].items()}

    def instructions(head, setting, columns):
        # Older results lack the checks that were added later.
        columns = {column: name for column, name in columns.items() if all(name in of for of in by_server.values())}

        def row(of):
            base = of[BASE]["instructions"][setting]
            return [f"{base:,.0f}", *(f"{of[name]['instructions'][setting] / base:.2f}" for name in columns.values())]

        return table([head, BASE, *columns], [[server, *row(of)] for server, of in by_server.items()])

    def ratios(head, column):
        def row(of):
            return [f"{of[BASE]['pipelined cpu']:,.0f}", *(column(of[name]) for name in timed.values())]

        return table([head, "SET PX, ns", *timed], [[server, *row(of)] for server, of in by_server.items()])

    timed = STEADY | NEW | SET_NEW
    cpu = ratios("one server, CPU", figure("pipelined ratio", "{:.2f}"))
    spread = ratios("one server, CPU, the middle half", halves("pipelined middle half"))
    weigh = {"SET PX": BASE, "SET PX of text": "SET PX of text", "INCR + EXPIRE": "INCR + EXPIRE"}
    bytes_of = []
    for server, of in by_server.items():
        once = [figure("bytes after 1")(of[name]) for name in weigh.values()]
        bytes_of.append([server, *once, *(figure(f"bytes after {calls}")(of[ALLOWED]) for calls in (1, 3))])
    weight = table(["one server, bytes a key", *weigh, "CL.THROTTLE, after 1 call", "after 3 calls"], bytes_of)
    newest = {name.split()[0]: name for name, of in results["by server"].items() if "speed" in of}
    speeds = "\n\n".join(
        f"{name}:\n\n" + speed(f"one check on the newest {kind}", results["by server"][name]["speed"])
        for kind, name in newest.items()
    )
    about = results["about"]
    return f"""Measured with {about["module"]}, on {about["machine"]}, on {about["date"]}.

The instructions of a SET PX, and those of each call divided by them. "Two limiters" is one `CL.MTHROTTLE` on two keys:

{instructions("one server", "alone", STEADY | QUOTAS | TWO)}

{instructions("one server, keys made anew", "alone", ANEW)}

{instructions("one server with an AOF", "aof", WRITES)}

{instructions("one server with a replica", "replica", WRITES)}

The CPU time of a pipelined SET PX, and that of each call divided by it, on servers that are alone. The figures are
medians of {results["rounds"]} rounds of {results["seconds"]} s; the second table has the middle half of the ratios:

{cpu}

{spread}

The memory of a key:

{weight}

The speed of the newest Redis and of the newest Valkey:

{speeds}"""


def leases(results):
    """Returns the table of leases, and says how it was measured."""
    rows = table(
        ["one hot key", "decisions a second", "× one by one", "calls to the server a second"],
        [
            [name, f"{of['decisions']:,.0f}", f"{of['ratio']:,.1f}", f"{of['calls']:,.0f}"]
            for name, of in results["ways"].items()
        ],
    )
    about, settings = results["about"], results["settings"]
    return f"""Decisions that allow, on one key. "One by one" and "pipelined" are calls of CL.THROTTLE, sent as above.
"Leases of 100" are those of [a client](../../docs/budgets/lease.rs) that takes 100 tokens with one call, on
{settings["threads"]} threads that share {settings["threads"]} cores with the server. The figures are medians of
{settings["rounds"]} rounds of {settings["seconds"]} s, on {about["machine"]}, with {about["server"]}, on
{about["date"]}.

{rows}"""
