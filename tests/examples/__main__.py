"""Runs the tests of the examples.

Usage: python3 tests/examples [pytest's words]     for example: python3 tests/examples test_outages.py -k flask

It first fetches the newest libraries of the examples, and pytest, into target/. `EVERYWHERE=yes` also runs the examples
with Debian's libraries, `REQUIRE_ALL=yes` fails where something is not installed, and `-n 4` runs four tests at once.
"""

import os
import sys

from packages import HERE, PIP, fetched

folder = fetched(*PIP)
if not folder:
    sys.exit("pip is not installed, or could not fetch the packages of tests/examples/requirements.txt: see above")
# Those that the caller names come first.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
os.chdir(HERE)
os.environ["PYTHONHASHSEED"] = "0"
words = ["-B", "-m", "pytest", "--dist=loadgroup", *sys.argv[1:]]
os.execv(sys.executable, [sys.executable, *words])
