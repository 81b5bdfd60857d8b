"""`python -m tests.stack.soak [--minutes 30]`: healthy traffic that changes, restarts, replacements; nobody is told.

Time runs fifteen times faster, so that half an hour is a working day. Exit code 1 where an alert was told.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from native.report import step
from tests.stack.lab import TIMES, Lab, lab
from tests.stack.scenarios import users

CHANGE_SECONDS: Final = 45.0
LOADING_SECONDS: Final = 12.0  # three minutes, in which the restarted engine refuses connections
RATES: Final = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)  # requests/s; 0 is a pause
CHANGING: Final = ("busy", "bursty")
RESTARTED: Final = "restarted"
NIGHTLY: Final = "nightly"  # idle for most of the time
ENGINES: Final = (*CHANGING, RESTARTED, NIGHTLY)
# By the share of the time that has passed.
EVENTS: Final = ((0.2, "probe"), (0.35, RESTARTED), (0.5, "exporter"), (0.7, RESTARTED))


def run(seconds: float) -> int:
    """Play it and return the exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="apc-soak-") as folder,
        lab(Path(folder), dict.fromkeys(ENGINES, ())) as stack,
        step(f"{seconds:.0f} s of healthy traffic") as running,
    ):
        chance, began, events = random.Random(0), time.monotonic(), list(EVENTS)
        while (passed := time.monotonic() - began) < seconds:
            while events and passed >= events[0][0] * seconds:
                _disturb(stack, events.pop(0)[1])
            _change(stack, chance)
            told = stack.receiver.notices
            running.tick(f"{passed:.0f} s, {len(told)} alerts")
            stack.receiver.await_until(lambda: False, min(CHANGE_SECONDS, seconds - passed))
        for notice in stack.receiver.notices:
            print(f"  {notice.at - began:6.0f} s  {notice.sender}  {notice.status}  {notice.alert}  {notice.target}")
        found = len(stack.receiver.notices)
    hours = seconds * TIMES / 3600
    print(f"  {found} alerts in {seconds / 60:.0f} minutes, which stand for {hours:.1f} hours")
    return 1 if found else 0


def _change(stack: Lab, chance: random.Random) -> None:
    for target in CHANGING:
        rate = chance.choice(RATES)
        plan = users(rate, sessions=chance.randint(1, 6), max_tokens=chance.choice((4, 8, 32)))
        stack.send(target, *([plan] if rate else []))
    stack.send(NIGHTLY, *([users(1.0)] if chance.random() < 1 / 4 else []))
    stack.send(RESTARTED, users())


def _disturb(stack: Lab, what: str) -> None:
    if what in ENGINES:
        stack.switch(what, restart=LOADING_SECONDS)
    else:
        stack.stop_program(what)
        stack.start_program(what)


def main(argv: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.stack.soak", description="Healthy traffic; no alert.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long [30]")
    return run(60 * parser.parse_args(argv).minutes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
