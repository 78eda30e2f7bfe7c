"""The libraries of the examples and the tests, in the versions that the files here name: fetched once into target/."""

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "tmp"
# The files that name the packages, and the command that fetches them into a folder.
PIP = ("requirements.txt", "constraints.txt"), (
    f"{sys.executable} -m pip install --quiet --root-user-action ignore --no-warn-conflicts --no-cache-dir --retries 1 "
    "--target $0 --requirement requirements.txt --constraint constraints.txt"
)
NPM = ("package-lock.json",), (
    "cp package.json package-lock.json $0; cd $0; "
    "npm ci --silent --ignore-scripts --no-audit --no-fund --fetch-retries=1 --cache cache"
)


@functools.cache
def fetched(files, command):
    """Returns the folder of these packages, or None if they could not be fetched."""
    text = b"".join((HERE / file).read_bytes() for file in files) + sys.version.encode()
    folder = TARGET / f"examples-{hashlib.sha256(text).hexdigest()[:16]}"
    if not folder.exists():
        TARGET.mkdir(parents=True, exist_ok=True)
        # Fetch elsewhere, then move: another run may be fetching the same at this moment.
        new = tempfile.mkdtemp(prefix="fetched-", dir=TARGET)
        if subprocess.run(["sh", "-ec", command, new], cwd=HERE, stdin=subprocess.DEVNULL).returncode:
            return None
        with contextlib.suppress(OSError):
            os.rename(new, folder)
    return folder
