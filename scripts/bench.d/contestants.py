"""The contestants: calls of the module, of the server's own commands, and of scripts."""

import os
import pathlib
from collections import namedtuple

PEER = os.environ.get("PEER")

# name: the contestant's row in the tables. call: one call, in which KEY stands for a key of 13 bytes. before, times:
# the call that prepares each key, and how often it is made. once: whether each key serves for one call only, like a new
# key. module: the module that the server loads, if it is not ours. timed: whether times are measured. counted: whether
# instructions are counted.
Contestant = namedtuple(
    "Contestant", "name call before times once module timed counted", defaults=[None, 3, False, None, True, True]
)


def steady(name, call, before=None, **options):
    """Returns a contestant that calls each key again and again. `before`, or the same call, prepares the keys."""
    return Contestant(name, call, before or call, **options)


def once(name, call, before=None, **options):
    """Returns a contestant that calls each key once. The key is new, or the call `before` has prepared it."""
    return Contestant(name, call, before, times=1 if before else 0, once=True, **options)


STATE = "1800000000000000000"  # has as many digits as the module's state
SET = f"SET KEY {STATE} PX 3600000"
# A quota that never limits. Its keys do not expire during a measurement. Its replies are longer than those of most.
MANY = "9999999 10 3600"
ALLOWED = f"CL.THROTTLE KEY {MANY}"
LIMITED = "CL.THROTTLE KEY 0 1 3600"
# 1,000 a day, with room for a measurement. Its products fit in 64 bits, as those of most quotas do.
DAY = "99999 1000 86400"

CONTESTANTS = [
    steady("PING", "PING"),
    steady("SET PX", SET),
    # The server stores an integer in the value's header; this text needs memory of its own, as the module's state does.
    steady("SET PX of text", "SET KEY 180000000000000000x PX 3600000", timed=False, counted=False),
    once("SET PX, new key", SET),
    steady("INCR + EXPIRE", "INCR KEY ; EXPIRE KEY 3600"),
    steady("window in Lua, as INCREX has it", "EVALSHA increx.lua 1 KEY 1 1000000 3600"),
    steady("GCRA in Lua", f"EVALSHA gcra.lua 1 KEY {MANY} 1"),
    steady("CL.THROTTLE allowed", ALLOWED),
    once("CL.THROTTLE second call", ALLOWED, ALLOWED),
    steady("CL.THROTTLE limited", LIMITED),
    once("CL.THROTTLE new key", ALLOWED),
    once("CL.THROTTLE expired key", ALLOWED, "CL.PTHROTTLE KEY 0 1 1"),
    steady("CL.LOOK limited", "CL.LOOK KEY 0 1 3600", LIMITED),
    steady("CL.THROTTLE 2 quotas allowed", f"{ALLOWED} 1 {DAY}"),
    steady("CL.THROTTLE 2 quotas limited", f"{LIMITED} 1 {DAY}"),
    steady("CL.CHARGE allowed", f"CL.CHARGE KEY {MANY} 1", timed=False),
    steady("CL.TAKE allowed", f"CL.TAKE KEY {MANY} 1", timed=False),
    steady("CL.MTHROTTLE 2 limiters allowed", f"CL.MTHROTTLE KEY:a {MANY} 1 KEY:b {MANY} 1"),
]
PEER_NAME = pathlib.Path(PEER).stem if PEER else None
if PEER:
    CONTESTANTS += [
        steady(f"{PEER_NAME} allowed", ALLOWED, module=PEER),
        steady(f"{PEER_NAME} limited", LIMITED, module=PEER),
        once(f"{PEER_NAME} new key", ALLOWED, module=PEER),
    ]
BASE = "SET PX"


def chosen(names=None):
    """Returns all contestants, or those with these names and the base that they are compared with."""
    return [c for c in CONTESTANTS if names is None or c.name in [BASE, *names]]
