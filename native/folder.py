"""The one folder that a stack lives in: what lies where, and who may work in it."""

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from native.errors import NativeError, SettingsError

# A unix socket's path holds 107 characters, and supervisord binds to PATH.PID first.
LONGEST_SOCKET: Final = 99
FOLDERS: Final = ("logs", "prometheus", "alertmanager", "grafana")
FILES: Final = ("supervisord.conf", "supervisord.pid", "supervisor.sock", "urls.json", "lock")


def demo(run: Path) -> Path:
    """Return the folder of the demo's stack, which lies in the other's."""
    return run / "demo"


def config(run: Path) -> Path:
    """Return supervisord's configuration."""
    return run / "supervisord.conf"


def log(run: Path, name: str) -> Path:
    """Return the log of a program."""
    return run / "logs" / f"{name}.log"


def urls(run: Path) -> Path:
    """Return the file of the pages that a person wants to see."""
    return run / "urls.json"


def socket(run: Path) -> Path:
    """Return supervisord's socket: in the folder, or in a private temporary one where that lies too deep."""
    path = run / "supervisor.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    name = hashlib.sha256(os.fsencode(run)).hexdigest()[:16]
    return Path("/tmp") / f"apc-{os.geteuid()}" / f"{name}.sock"  # noqa: S108 - `prepare` sees that it is ours alone


def prepare(run: Path) -> None:
    """Make the folders; raises SettingsError where that cannot be, naming the setting."""
    try:
        for folder in (
            run / "logs",
            run / "prometheus" / "targets",
            run / "prometheus" / "data",
            run / "alertmanager" / "data",
        ):
            folder.mkdir(parents=True, exist_ok=True)
        socket(run).parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"APC_RUN_DIR: cannot work in {run}: {error.strerror}") from error
    if socket(run).parent != run:
        _require_private(socket(run).parent)


def delete(run: Path) -> None:
    """Delete what a stack wrote, and no other file: the user chose the folder."""
    for name in FOLDERS:
        shutil.rmtree(run / name, ignore_errors=True)
    for name in FILES:
        (run / name).unlink(missing_ok=True)
    with suppress(OSError):  # it holds something else, or was never made
        run.rmdir()


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep other calls of `up` and `down` out of the folder; waits for them."""
    with (run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a digest of files and of all files in folders; what is absent or compiled counts nothing."""
    digest = hashlib.sha256()
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                digest.update(os.fsencode(file) + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _require_private(folder: Path) -> None:
    """Raise where others could stand between us and supervisord: a temporary folder's name can be guessed."""
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise NativeError(
            f"{folder} is not ours alone: delete it, or let APC_RUN_DIR name a folder with a shorter path"
        )
