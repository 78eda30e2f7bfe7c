"""Measures decisions on one hot key: by a call each, or from a lease in the client's memory."""

import os
import statistics
import subprocess

from contestants import MANY
from figures import machine
from places import BUILT, say
from servers import ONE_BY_ONE, PIPELINED, Server

BASE = "one by one"
BATCHES = [100, 1_000, 10_000]
# One client thread per core; one of them shares the server's.
THREADS = len(os.sched_getaffinity(0))


def measure(scale):
    """Measures all ways in each round. Returns medians; a ratio compares two figures of the same round."""
    ways = {BASE: by_calls(ONE_BY_ONE), "pipelined": by_calls(PIPELINED)}
    ways |= {f"leases of {batch:,}": by_leases(batch) for batch in BATCHES}
    rounds = {name: [] for name in ways}
    server = Server()
    try:
        for number in range(scale.lease_rounds):
            for name, way in ways.items():
                say(f"one hot key, round {number + 1} of {scale.lease_rounds}: {name}")
                server.empty()
                server.client.config_resetstat()
                decisions, seconds = way(server, scale.long_seconds)
                stats = server.client.info("commandstats")
                calls = sum(stats[name]["calls"] for name in stats if name.startswith("cmdstat_cl."))
                rounds[name].append({"decisions": decisions / seconds, "calls": calls / seconds})
    finally:
        server.stop()
    for figures in rounds.values():
        for own, base in zip(figures, rounds[BASE]):
            own["ratio"] = own["decisions"] / base["decisions"]
    ways = {name: {key: statistics.median(f[key] for f in of) for key in of[0]} for name, of in rounds.items()}
    settings = {"rounds": scale.lease_rounds, "seconds": scale.long_seconds, "threads": THREADS, "base": BASE}
    return {"about": machine(), "settings": settings, "ways": ways, "rounds": rounds}


def by_calls(shape):
    def run(server, seconds):
        load = server.load(f"CL.THROTTLE KEY {MANY}", f"{seconds}s", 1, shape=shape)
        assert load.limited == 0
        return load.calls, load.seconds

    return run


def by_leases(batch):
    def run(server, seconds):
        command = [BUILT / "release/examples/leases", *map(str, (server.port, THREADS, seconds, batch))]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return map(float, output.split())

    return run
