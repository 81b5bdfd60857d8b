"""The causal curve: TTFT by the share of a prompt that is cached, all else being equal. Pure but for what it remembers.

A sweep asks for each share several times, two requests at the end of a cycle. There it overlaps with no cycle, the
cycle's readings of the engine hold its tokens, its prefix has just been sent, and a cycle stays nearly as large as the
others, for which the rules that take the canary off the traffic take it.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from probes.client import Result
from probes.plan import Arm, Planned

SHARES: Final = (0, 25, 50, 75, 100)  # per cent of what can be reused of a prompt
ROUNDS: Final = 3  # requests of a share in a sweep
LEAST: Final = 2  # of them, for a median: one may be disturbed
PER_CYCLE: Final = 2  # requests: half of a cycle's own
# There and back again, so that a share is not always asked after the same one.
ORDER: Final = tuple(share for number in range(ROUNDS) for share in SHARES[:: -1 if number % 2 else 1])
TOLERANCE: Final = 0.05  # of the prompt, by which what was cached may miss the plan
RESULTS: Final = ("ok", "partial", "failed", "over_budget")


@dataclass(frozen=True, slots=True)
class Point(Planned):
    """A request that shares so many per cent with one sent before: `expected` tokens should be found."""

    share: int = 0
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Size:
    """What a prompt comes to, in tokens: all of it, all up to the end of its first message, and the unit of reuse."""

    prompt: int
    first: float
    unit: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """How a sweep ended, one of RESULTS, and why if not well."""

    result: str
    note: str = ""


def size_of(like: Planned, prompt: int, unit: int, cached: int | None) -> Size:
    """Return the size of a prompt of so many tokens, of which so many were cached, as far as that is told.

    That is the first message: the head of the second is shared as well, and is worth the part of a unit that is lost.
    Where it is not told, each character counts alike.
    """
    lengths = [len(message["content"]) for message in like.messages]
    return Size(prompt, cached or prompt * lengths[0] / sum(lengths), unit)


def point(share: int, like: Planned, size: Size, unique: str) -> Point:
    """Return a request with a share of its prompt in common with `like`, which has been computed.

    One word gives way to a unique one, from which on nothing can be found. 100 % is the very same prompt: the engine
    computes its last token again in any case, and reuses whole units.
    """
    expected = round((size.prompt - 1) // size.unit * share / 100) * size.unit
    (first, *rest) = like.messages
    text = first["content"]
    if share < 100:  # noqa: PLR2004  # per cent
        # The middle of the unit after the last shared one: where a character stands is known nearly, not exactly.
        aim = (expected + size.unit / 2) / size.first if expected else 0.0
        start = text.rfind(" ", 0, round(aim * len(text))) + 1
        text = f"{text[:start]}{unique} {text[start:].partition(' ')[2]}"
    messages = ({**first, "content": text}, *rest)
    return Point(Arm.CURVE, messages, like.words, like.rank, measures=False, share=share, expected=expected)


class Curve:
    """One target's sweeps: what to ask next, and what the last one measured. `interval` is in seconds.

    `points` are medians in seconds by share: none that was not cached as planned, and none from before a failure.
    """

    def __init__(self, interval: float, tokens: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.points: Mapping[int, float] = {}
        self._interval = interval
        self._tokens = tokens
        self._clock = clock
        self._due = -math.inf
        self._pending: tuple[int, ...] = ()
        self._seen: dict[int, list[float]] = {}
        self._faults: dict[int, str] = {}
        self._words = 0
        self._engine_start: float | None = None

    def shares(self) -> tuple[int, ...]:
        """Return what to ask with this cycle, in order: nothing between two sweeps."""
        if not self._pending and self._clock() >= self._due:
            self._due = self._clock() + self._interval
            self._pending = ORDER
            self._seen = {share: [] for share in SHARES}
            self._faults = {}
        return self._pending[:PER_CYCLE]

    def refused(self, cost: int) -> Sweep | None:
        """End the sweep where it would use more than its tokens, at `cost` tokens a request."""
        takes = cost * len(ORDER)
        return self.refuse(f"a sweep takes {takes} tokens: raise APC_CURVE_TOKENS") if takes > self._tokens else None

    def refuse(self, why: str) -> Sweep:
        """End the sweep for want of tokens."""
        return self._end("over_budget", why)

    def take(self, asked: Point, result: Result, cached: int | None) -> Sweep | None:
        """Take the next request's result in; the sweep's, if it was the last one. `cached` is None where not told."""
        self._pending = self._pending[1:]
        if result.failure or result.ttft is None:
            return self._end("failed", result.failure.message if result.failure else "")
        if fault := _fault(asked, result, cached):
            self._faults[asked.share] = fault
        else:
            self._seen[asked.share].append(result.ttft)
        if self._pending:
            return None
        self.points = {share: statistics.median(seen) for share, seen in self._seen.items() if len(seen) >= LEAST}
        left_out = [f"{share} %: {self._faults[share]}" for share in SHARES if share not in self.points]
        return Sweep("partial" if left_out else "ok", "; ".join(left_out))

    def forget(self) -> None:
        """Drop the points, which may be another engine's, and begin anew with the next cycle that is well."""
        self._end("failed", "")
        self._due = -math.inf

    def meet(self, words: int, engine_start: float | None) -> None:
        """Forget what prompts of another length gave, or an engine that was started at another time (Unix seconds)."""
        engine_start = engine_start or self._engine_start
        if (words, engine_start) != (self._words, self._engine_start or engine_start):
            self.forget()
        self._words, self._engine_start = words, engine_start

    def _end(self, result: str, note: str) -> Sweep:
        self.points, self._pending = {}, ()
        return Sweep(result, note)


def _fault(asked: Point, result: Result, cached: int | None) -> str:
    """Return why a result says nothing of its share; "" if it does."""
    if result.marks:
        return f"not timed, as the answer is {', '.join(sorted(result.marks))}"
    if cached is not None and abs(cached - asked.expected) > TOLERANCE * (result.prompt_tokens or 0):
        return f"{cached} tokens were cached and not {asked.expected}"
    return ""
