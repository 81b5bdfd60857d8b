"""Progress for people: a line with a tick and seconds for each step, redrawn while it runs on a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

QUIET_SECONDS: Final = 10.0  # after which a step says in a log, too, that it still runs
_WIDTH: Final = 58


class Step:
    """A step that runs; `tick` is for those that take long."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._started = time.monotonic()
        self._next_line = self._started + QUIET_SECONDS
        self.tick()

    def tick(self, detail: str = "") -> None:
        """Say that the step still runs, and what it waits for."""
        text = f"{self.title}{': ' if detail else ''}{detail}"
        if sys.stdout.isatty():
            self._write("…", text[:_WIDTH], start="\r", end="")  # a wrapped line could not be redrawn
        elif time.monotonic() >= self._next_line:
            self._next_line += QUIET_SECONDS
            self._write("…", text)

    def close(self, mark: str) -> None:
        """Write the final line."""
        self._write(mark, self.title, start="\r" if sys.stdout.isatty() else "")

    def _write(self, mark: str, text: str, start: str = "", end: str = "\n") -> None:
        seconds = time.monotonic() - self._started
        print(f"{start}  {mark} {text:<{_WIDTH}} {seconds:5.1f} s", end=end, flush=True)


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Report a step: a tick when the block ends, a cross when it raises."""
    running = Step(title)
    try:
        yield running
    except BaseException:
        running.close("✗")
        raise
    running.close("✓")


def table(rows: list[tuple[str, ...]]) -> str:
    """Align rows in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"  {line.rstrip()}" for line in lines)
