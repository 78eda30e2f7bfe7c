"""Measures the cost of calls on each server: instructions, CPU and memory, and on the newest servers also speed."""

from contestants import chosen
from figures import SETTINGS, machine, measure_instructions_on, measure_memory, measure_time, medians, name_of
from places import say

COUNTED = ["SET PX, new key", "SET PX, expired key", "CL.THROTTLE allowed", "CL.THROTTLE second call"]
COUNTED += ["CL.THROTTLE limited", "CL.THROTTLE second call, limited", "CL.THROTTLE new key"]
COUNTED += ["CL.THROTTLE expired key", "CL.LOOK limited", "CL.MTHROTTLE 2 limiters allowed"]
COUNTED += ["CL.THROTTLE 2 quotas allowed", "CL.THROTTLE 2 quotas limited", "CL.THROTTLE 3 quotas allowed"]
TIMED = [name for name in COUNTED if "expired" not in name and "MTHROTTLE" not in name and "quotas" not in name]
WEIGHED = ["SET PX of text", "INCR + EXPIRE", "CL.THROTTLE allowed"]
FAST = ["INCR + EXPIRE", "window in Lua, as INCREX has it", "GCRA in Lua", "CL.THROTTLE allowed", "CL.THROTTLE limited"]
FAST += ["CL.LOOK limited"]
SECONDS = 0.08


def measure(executables, scale):
    """Measures each server. The executables of one kind, Redis or Valkey, must come in the order of their versions."""
    names = {executable: name_of(executable) for executable in executables}
    counted = measure_instructions_on(executables, scale.counts, dict.fromkeys(SETTINGS, COUNTED))
    result = {}
    for executable, name in names.items():
        say(name)
        parts = [counted[executable], measure_memory(scale.memory_keys, WEIGHED, executable)]
        parts.append(medians(measure_time(scale.rounds, SECONDS, chosen(TIMED), ["pipelined"], executable)))
        known = {contestant for part in parts for contestant in part}
        result[name] = {"contestants": {c: {k: v for part in parts for k, v in part.get(c, {}).items()} for c in known}}
    for kind in ("Redis", "Valkey"):
        of_kind = [executable for executable in executables if names[executable].startswith(kind)]
        for newest in of_kind[-1:]:
            say(f"speed of {names[newest]}")
            speed = measure_time(scale.rounds, SECONDS, chosen(FAST), executable=newest)
            result[names[newest]]["speed"] = medians(speed)
    about = machine()
    del about["server"]
    return {"about": about, "rounds": scale.rounds, "seconds": SECONDS, "by server": result}
