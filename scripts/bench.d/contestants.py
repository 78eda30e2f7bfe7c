"""What is measured: calls of the module, of the server's own commands, and of scripts."""

import os
import pathlib
from collections import namedtuple

PEER = os.environ.get("PEER")

# The name, one call of it, and what each key gets before: the same call, unless said, so that all is steady. KEY is a
# key of 13 bytes. A fresh contestant meets a new key with each call.
Contestant = namedtuple("Contestant", "name call before fresh module", defaults=[None, False, None])

STATE = "1800000000000000000"  # as many digits as ours
SET = f"SET KEY {STATE} PX 3600000"
MANY = "9999999 10 3600"  # never full, and no key expires meanwhile

CONTESTANTS = [
    Contestant("PING", "PING"),
    Contestant("GET", "GET KEY", SET),
    Contestant("SET PX", SET),
    Contestant("SET PX, new key", SET, fresh=True),
    Contestant("INCR + EXPIRE", "INCR KEY ; EXPIRE KEY 3600"),
    Contestant("GCRA in Lua", f"EVALSHA gcra.lua 1 KEY {MANY} 1"),
    Contestant("funnel in Lua, hash", f"EVALSHA funnel.lua 1 KEY {MANY} 1"),
    Contestant("sliding window in Lua, sorted set", "EVALSHA window.lua 1 KEY 1000000 60000000"),
    Contestant("CL.THROTTLE allowed", f"CL.THROTTLE KEY {MANY}"),
    Contestant("CL.THROTTLE limited", "CL.THROTTLE KEY 0 1 3600"),
    Contestant("CL.THROTTLE new key", f"CL.THROTTLE KEY {MANY}", fresh=True),
    Contestant("CL.PTHROTTLE allowed", "CL.PTHROTTLE KEY 9999999 10 3600000"),
    Contestant("CL.CHARGE allowed", f"CL.CHARGE KEY {MANY} 1"),
    Contestant("CL.TAKE allowed", f"CL.TAKE KEY {MANY} 1"),
    Contestant("CL.MTHROTTLE 2 limits allowed", f"CL.MTHROTTLE KEY:a {MANY} 1 KEY:b {MANY} 1"),
    Contestant("CL.MTHROTTLE 4 limits allowed", "CL.MTHROTTLE" + "".join(f" KEY:{x} {MANY} 1" for x in "abcd")),
]
PEER_NAME = pathlib.Path(PEER).stem if PEER else None
if PEER:
    CONTESTANTS += [
        Contestant(f"{PEER_NAME} allowed", f"CL.THROTTLE KEY {MANY}", module=PEER),
        Contestant(f"{PEER_NAME} limited", "CL.THROTTLE KEY 0 1 3600", module=PEER),
        Contestant(f"{PEER_NAME} new key", f"CL.THROTTLE KEY {MANY}", fresh=True, module=PEER),
    ]
BASE = "SET PX"
GROWING = ["GET", "SET PX", "CL.THROTTLE allowed", "CL.THROTTLE limited"]
