"""The tables, in Markdown. Each has a head that no other has: tests/once/costs.rs finds it by its head."""

import textwrap

from contestants import BASE


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def wrapped(page):
    """Returns the page with paragraphs of 120 letters a line. Headings, lists, tables and pictures stay as they are."""
    blocks = page.split("\n\n")
    return "\n\n".join(b if b[0] in "#*|!" else textwrap.fill(b, 120, break_on_hyphens=False) for b in blocks)


def markdown(results):
    """Returns the page of results, with all tables. A cell is empty if its figure makes no sense for a contestant."""
    by_name, settings, about = results["contestants"], results["settings"], results["about"]
    base = by_name[BASE]["instructions"]

    def rows(*columns):
        for name, of in by_name.items():
            cells = [column(of) for column in columns]
            if any(cells):
                yield [name, *cells]

    def counted(setting):
        count = lambda of: of.get("instructions", {}).get(setting)
        yield lambda of: f"{count(of):,.0f}" if count(of) else ""
        yield lambda of: f"{count(of) / base[setting]:.2f}" if count(of) else ""

    instructions = table(
        ["one check", "alone", "× SET PX", "with an AOF", "× SET PX there", "with a replica", "× SET PX there"],
        rows(*(column for setting in base for column in counted(setting))),
    )
    speed = table(
        ["one check, CPU", "ns, pipelined", "× SET PX", "middle half", "a second, pipelined", "a second, one by one"],
        rows(figure("cpu"), figure("ratio", "{:.2f}"), half, figure("pipelined"), figure("one by one")),
    )
    weight = table(
        ["one key", "bytes after 1 call", "after 3 calls"],
        rows(*map(figure, ("bytes after 1", "bytes after 3"))),
    )
    lines = "\n".join(f"* {key}: {value}" for key, value in about.items() if key != "command")
    connections, at_once = settings["pipelined"]
    return wrapped(f"""# What a check costs

Made by `{about["command"]}`:

{lines}

A column "× SET PX" divides a figure by that of `SET key value PX ms`. A key's name has 13 bytes.

## Instructions

The instructions within the server's function `call`, counted by callgrind on {settings["counted keys"]} keys. A server
that is "alone" has neither a replica nor an append-only file (AOF).

{instructions}

## Speed

The CPU time that the server takes for a call, including the network, and the calls that it answers in a second. The
server is alone, and has a core of its own, as the load has. Pipelined calls are sent {at_once} at once, on each of
{connections} connections. Calls one by one are sent on {settings["one by one"][0]} connections, each of which waits for
its answer. The figures are medians of {settings["rounds"]} rounds, in each of which each check runs for
{settings["seconds"]} s on {settings["keys"]:,} keys; a check that needs another key for each call calls all keys once.
A ratio compares two figures of the same round; the middle half is that of the ratios.

{speed}

![CPU of the server per check](cost.svg)

## Memory

{weight}

## On each server

{servers(results["servers"]) if "servers" in results else "Not measured: see `scripts/bench --servers`."}
""")


def figure(key, form="{:,.0f}"):
    return lambda of: form.format(of[key]) if key in of else ""


def half(of):
    return "{:.2f}–{:.2f}".format(*of["middle half"]) if "middle half" in of else ""


# The columns of the tables that have a line for each server.
ALLOWED = {"allowed": "CL.THROTTLE allowed", "second call": "CL.THROTTLE second call"}
LIMITED = {"limited": "CL.THROTTLE limited", "look": "CL.LOOK limited"}
NEW = {"new key": "CL.THROTTLE new key"}
TWO = {"two quotas": "CL.THROTTLE 2 quotas allowed"}
TWO_LIMITED = {"two quotas, limited": "CL.THROTTLE 2 quotas limited"}
TWO_KEYS = {"two limiters": "CL.MTHROTTLE 2 limiters allowed"}


def servers(results):
    """Returns the tables with a line for each server: the cost of the base, and the ratios to it."""

    def instructions(head, setting, columns):
        def row(of):
            base = of[BASE]["instructions"][setting]
            return [f"{base:,.0f}", *(f"{of[name]['instructions'][setting] / base:.2f}" for name in columns.values())]

        return table([head, BASE, *columns], [[server, *row(of)] for server, of in results["by server"].items()])

    about = results["about"]
    return f"""Measured with {about["module"]}, on {about["machine"]}, on {about["date"]}.

The instructions of a SET PX, and those of each call divided by them. "Two limiters" is one `CL.MTHROTTLE` on two keys:

{instructions("one server", "alone", ALLOWED | LIMITED | NEW | TWO | TWO_LIMITED | TWO_KEYS)}

{instructions("one server with an AOF", "aof", ALLOWED | NEW | TWO | TWO_KEYS)}"""
