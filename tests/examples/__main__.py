"""Runs the tests of the examples.

Usage: python3 tests/examples [pytest's words]     for example: python3 tests/examples test_outages.py -k flask -n 4

It first fetches pytest and the newest libraries of the examples into target/. `EVERYWHERE=yes` also runs the examples
with Debian's libraries; with `REQUIRE_ALL=yes` a test fails where something is not installed.
"""

import os
import sys

from packages import HERE, PIP, TARGET, fetched

folder = fetched(*PIP)
if not folder:
    sys.exit("pip is not installed, or could not fetch the packages of tests/examples/requirements.txt: see above")
# Those that the caller names come first.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
os.environ["PYTHONPYCACHEPREFIX"] = str(TARGET / "pycache")
os.chdir(HERE)
os.execv(sys.executable, [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--dist=loadgroup", *sys.argv[1:]])
