"""The newer generation of Prometheus and Alertmanager, Debian sid's, beside the older one that the stack fetches."""

import fcntl
import subprocess
from typing import Final

from native.settings import ROOT

FOLDER: Final = ROOT / ".tools" / "sid"
PACKAGES: Final = ("prometheus", "promtool", "prometheus-alertmanager")


def newer(binary: str) -> str:
    """Return the path of sid's prometheus, promtool, prometheus-alertmanager or amtool, fetched where it is missing."""
    FOLDER.parent.mkdir(exist_ok=True)
    with (FOLDER.parent / "sid.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = FOLDER / "usr" / "bin" / binary
        if not path.exists():
            subprocess.run([ROOT / ".ci" / "unpack", "sid", FOLDER, *PACKAGES], check=True)
    return str(path)
