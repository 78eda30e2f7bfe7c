"""The libraries of the examples, the newest or Debian's, and where the programs find them.

The newest are those of requirements.txt and package.json, fetched once into target/. Debian's are those of redis-py and
node-redis, and of all that is in Python: `LIBRARIES=debian`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "tmp"
# The file that names the packages, and the command that fetches them into a folder. A fetch that hangs fails.
PIP = "requirements.txt", (
    f"timeout 900 {sys.executable} -m pip install --quiet --root-user-action ignore --no-warn-conflicts --retries 1 "
    "--no-cache-dir --target $0 --requirement requirements.txt"
)
NPM = "package-lock.json", (
    "cp package.json package-lock.json $0; cd $0; "
    "timeout 900 npm ci --silent --ignore-scripts --no-audit --no-fund --fetch-retries=1 --cache cache"
)


def fetched(file, command):
    """Returns the folder of these packages, or None if they could not be fetched."""
    text = (HERE / file).read_text() + sys.version
    folder = TARGET / f"examples-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not folder.exists():
        # A fetch that breaks off leaves no folder that looks complete.
        new = TARGET / "fetched"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        if subprocess.run(["sh", "-ec", command, new], cwd=HERE, stdin=subprocess.DEVNULL).returncode:
            return None
        new.rename(folder)
    return folder


IS_DEBIAN = os.environ.get("LIBRARIES") == "debian"
# Fetched before the workers of pytest-xdist start.
PYTHON = "" if IS_DEBIAN else f"{fetched(*PIP)}"
NODE = ("/usr/share/nodejs:" if IS_DEBIAN else "") + f"{fetched(*NPM)}/node_modules"
