"""The paths of the benchmark's files, and `say`, which prints a line for each step."""

import os
import pathlib
import sys
import time

PARTS = pathlib.Path(__file__).resolve().parent
ROOT = PARTS.parent.parent
BUILT = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
MODULE = BUILT / "release/libredis_cell.so"
WORK = BUILT / "bench"
RESULTS = ROOT / "scripts/bench-results"
SERVER = os.environ.get("SERVER", "redis-server")
START = time.monotonic()


def say(text):
    print(f"{time.monotonic() - START:4.0f} s  {text}", file=sys.stderr, flush=True)
