"""The libraries of the examples, and where the programs find them.

They are the newest, those of requirements.txt and package.json, fetched once into target/. With `LIBRARIES=debian`,
redis-py, node-redis and all that is in Python are Debian's.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "tmp"
IS_DEBIAN = os.environ.get("LIBRARIES") == "debian"
PIP = (
    f"{sys.executable} -m pip install --quiet --root-user-action ignore --no-warn-conflicts --retries 1 --no-cache-dir "
    '--target "$0" --requirement requirements.txt'
)
NPM = 'npm ci --prefix "$0" --silent --ignore-scripts --no-audit --no-fund --fetch-retries=1 --cache "$0/cache"'


def fetched(file, command):
    """Returns the folder into which the command has fetched what the file names."""
    TARGET.mkdir(parents=True, exist_ok=True)
    folder = TARGET / f"examples-{sys.version_info.minor}-{file}"
    # The copy of the file comes last: a fetch that breaks off, or hangs, leaves none.
    steps = f'rm -rf "$0"; mkdir -p "$0"; cp package*.json "$0"; timeout 900 {command}; cp {file} "$0/fetched"'
    # Runs on several servers may start at once.
    command = ["flock", f"{folder}.lock", "sh", "-ec", f'cmp -s {file} "$0/fetched" || {{ {steps}; }}', folder]
    subprocess.run(command, cwd=HERE, check="SCRIPTS_TEST" in os.environ)
    return str(folder)


# Fetched before the workers of pytest-xdist start.
PYTHON = "" if IS_DEBIAN else fetched("requirements.txt", PIP)
NODE = ("/usr/share/nodejs:" if IS_DEBIAN else "") + f"{fetched('package-lock.json', NPM)}/node_modules"
# The tests' own redis-py is that of the programs. An empty path would be this folder.
sys.path[:0] = filter(None, [PYTHON])
