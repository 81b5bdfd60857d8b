"""The stack's processes, found by a mark that each inherits in its environment: no list of pids can go stale.

A mark names the folder of one stack. It outlives restarts and a supervisord that was killed, and no foreign
process carries it. Signals go through handles (pidfd), which unlike pids never come to mean another process.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

MARK: Final = "APC_STACK"
PROC: Final = Path("/proc")


def environment(pid: int) -> dict[str, str]:
    """Return what the process was started with; empty where it is gone or not ours to read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def name(pid: int) -> str:
    """Return the program's short name; empty where the process is gone."""
    with suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().strip()
    return ""


def pids() -> list[int]:
    """Return every process of the machine."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]


def members(run: Path) -> list[int]:
    """Return the processes of the stack in this folder."""
    return [pid for pid in pids() if environment(pid).get(MARK) == str(run)]


def await_gone(run: Path, seconds: float) -> bool:
    """Wait until the stack has no process left; False where one outlives the deadline."""
    return _until_gone(run, seconds, None)


def end(run: Path, patience: float) -> None:
    """End the stack's processes: politely, then after `patience` seconds by force."""
    if not _until_gone(run, patience, signal.SIGTERM):
        _until_gone(run, patience, signal.SIGKILL)


def _until_gone(run: Path, seconds: float, number: signal.Signals | None) -> bool:
    deadline = time.monotonic() + seconds
    while True:  # one that ends may have started another meanwhile
        with _handles(run) as handles:
            if not handles:
                return True
            for handle in handles:
                with suppress(ProcessLookupError):
                    if number:
                        signal.pidfd_send_signal(handle, number)
            for handle in handles:
                select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        if time.monotonic() >= deadline:
            return not members(run)


@contextmanager
def _handles(run: Path) -> Iterator[list[int]]:
    handles: list[int] = []
    try:
        for pid in members(run):
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                if environment(pid).get(MARK) == str(run):  # else the pid passed to another before we held it
                    handles.append(handle)
                else:
                    os.close(handle)
        yield handles
    finally:
        for handle in handles:
            os.close(handle)
