"""`python -m tests.stack.real`: the lab in front of a real vLLM, whose prompts get a time at their head.

Exit code 1 where ApcHitRateZero is not told, or another alert is, or it does not resolve.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from native.report import step
from tests.engine.conftest import start
from tests.stack.lab import GENERATIONS, Lab, lab
from tests.stack.scenarios import HEADS, users

TARGET: Final = "real"
ALERT: Final = "ApcHitRateZero"
RATE: Final = 1.5  # requests/s, of which this machine computes about three uncached
WARM_SECONDS: Final = 80.0
DEADLINE: Final = 120.0


def main() -> int:
    """Play it, print what was told and when, and return the exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="apc-real-") as folder,
        start() as url,
        lab(Path(folder), {}, {TARGET: url}) as stack,
    ):
        stack.send(TARGET, users(RATE))
        with step("healthy traffic"):
            stack.receiver.await_until(lambda: False, WARM_SECONDS)
        began = time.monotonic()
        stack.send(TARGET, users(RATE, HEADS))
        _await(stack, "firing")
        stack.send(TARGET, users(RATE))
        _await(stack, "resolved")
        notices = list(stack.receiver.notices)
    for notice in notices:
        print(f"  {notice.at - began:5.1f} s  {notice.sender}  {notice.status}  {notice.alert}  {notice.target}")
    told = [(notice.sender, notice.status, notice.alert) for notice in notices]
    return int(sorted(told) != sorted((g, status, ALERT) for g in GENERATIONS for status in ("firing", "resolved")))


def _await(stack: Lab, status: str) -> None:
    with step(f"{ALERT} is {status}"):
        stack.receiver.await_until(
            lambda: (
                {n.sender for n in stack.receiver.notices if (n.status, n.alert) == (status, ALERT)} == set(GENERATIONS)
            ),
            DEADLINE,
        )


if __name__ == "__main__":
    sys.exit(main())
