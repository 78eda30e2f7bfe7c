"""The checks that are measured: calls of the module, of the server's own commands, and of scripts."""

from collections import namedtuple

# call: one check, in which KEY stands for the name of a key; " ; " stands between two commands. before: the calls that
# prepare a key. once: whether a key serves for one check only, like a new key. timed: whether CPU time is measured.
Check = namedtuple("Check", "call before once timed", defaults=[False, True])


def steady(call, before=None, **options):
    """Returns a check that calls each key again and again. `before`, or the same call, prepares the key."""
    return Check(call, [before or call] * 3, **options)


def once(call, *before):
    """Returns a check that calls each key once. redis-benchmark, which draws keys, can time it on new keys alone."""
    return Check(call, before, once=True, timed=not before)


STATE = "1800000000000000000"  # has as many digits as the module's state
SET = f"SET KEY {STATE} PX 3600000"
# A quota that never limits. Its keys do not expire during a measurement. Its replies are longer than those of most.
MANY = "9999999 10 3600"
ALLOWED = f"CL.THROTTLE KEY {MANY}"
LIMITED = "CL.THROTTLE KEY 0 1 3600"
# 1,000 a day, with room for a measurement. Its products fit in 64 bits, as those of most quotas do.
DAY = "99999 1000 86400"
# The costs of other checks are divided by that of this one.
BASE = "SET PX"

CHECKS = {
    "PING": steady("PING"),
    BASE: steady(SET),
    "SET PX, new key": once(SET),
    "INCR + EXPIRE": steady("INCR KEY ; EXPIRE KEY 3600", timed=False),  # redis-benchmark sends one command
    "GCRA in Lua": steady(f"EVALSHA gcra.lua 1 KEY {MANY} 1"),
    "CL.THROTTLE allowed": steady(ALLOWED),
    "CL.THROTTLE second call": once(ALLOWED, ALLOWED),
    "CL.THROTTLE limited": steady(LIMITED),
    "CL.THROTTLE new key": once(ALLOWED),
    "CL.THROTTLE expired key": once(ALLOWED, "CL.PTHROTTLE KEY 0 1 1"),
    "CL.LOOK limited": steady("CL.LOOK KEY 0 1 3600", LIMITED),
    "CL.THROTTLE 2 quotas allowed": steady(f"{ALLOWED} 1 {DAY}"),
    "CL.THROTTLE 2 quotas limited": steady(f"{LIMITED} 1 {DAY}"),
    "CL.CHARGE allowed": steady(f"CL.CHARGE KEY {MANY} 1", timed=False),
    "CL.TAKE allowed": steady(f"CL.TAKE KEY {MANY} 1", timed=False),
    "CL.MTHROTTLE 2 limiters allowed": steady(f"CL.MTHROTTLE KEY {MANY} 1 KEY:b {MANY} 1"),
}
# Another module's checks, and the base.
PEERS = [BASE, "CL.THROTTLE allowed", "CL.THROTTLE limited", "CL.THROTTLE new key"]
