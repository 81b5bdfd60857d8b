"""Rounds over N prefixes -> what the cache still held of them, and the N at which it no longer does. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from probes import plan
from probes.bench.counters import Window
from probes.bench.servers import Sample
from probes.bench.stats import Estimate
from probes.bench.summary import Row

MODE: Final = "prefixes"
KEPT: Final = 0.9  # of the whole units of a prompt: what is missing beyond its own tail was evicted
SLACK: Final = 0.1  # of the stated room: a request's own tail and answer, and a block the engine keeps for itself


@dataclass(frozen=True, slots=True)
class Round:
    """N prefixes asked once each, then all again in the same order.

    Shares are of the second pass, 0..1; None = not told.
    """

    prefixes: int
    cold: Estimate | None  # TTFT, seconds
    again: Estimate | None
    prompt: float | None  # tokens, median
    by_usage: float | None
    by_counters: float | None
    blocks: float | None  # handed out again in the second pass, a request: evicted ones, and about one tail

    @property
    def cached(self) -> float | None:
        """The share by the answers, else by the engine."""
        return self.by_counters if self.by_usage is None else self.by_usage


@dataclass(frozen=True, slots=True)
class Cliff:
    """Reuse holds with `held` prefixes of `tokens` each and falls with `fell`; 0 and None where it was not seen to."""

    held: int
    fell: int | None
    tokens: float

    def room(self, stated: int) -> float:
        """Return how many of them the stated tokens of the cache hold."""
        return stated / self.tokens

    def agrees(self, stated: int) -> bool:
        """Return whether that lies between what held and what fell."""
        room = self.room(stated)
        return self.held * (1 - SLACK) <= room and (self.fell is None or room <= self.fell * (1 + SLACK))


def rounds(samples: Sequence[Sample], rows: Iterable[Row], windows: Iterable[Window]) -> list[Round]:
    """Return what was found of each number of prefixes, fewest first."""
    of = {(row.at, row.kind): row for row in rows if row.mode == MODE}
    engine = {one.stage: one for one in windows if one.arms != "off"}
    made = []
    for at in sorted({at for at, _ in of}):
        cold, again = of.get((at, "cold")), of.get((at, "warm"))
        seen = engine.get(f"{MODE}, {at:g}, warm")
        blocks = seen.reallocated_blocks if seen else None
        made.append(
            Round(
                prefixes=int(at),
                cold=cold.ttft if cold else None,
                again=again.ttft if again else None,
                prompt=again.prompt if again else None,
                by_usage=_share(one for one in samples if (one.mode, one.at, one.kind) == (MODE, at, "warm")),
                by_counters=seen.hit_ratio if seen else None,
                blocks=blocks / seen.requests if seen and seen.requests and blocks is not None else None,
            )
        )
    return made


def cliff(found: Sequence[Round], unit: int | None) -> Cliff | None:
    """Return where reuse falls; `unit` in tokens. None where nothing tells of cached tokens."""
    told = [one for one in found if one.cached is not None and one.prompt]
    if not told:
        return None
    tail = unit or plan.DEFAULT_UNIT
    kept = [(one.cached or 0) * (one.prompt or 0) >= KEPT * ((one.prompt or 0) - tail) for one in told]
    first = kept.index(False) if False in kept else len(told)
    fell = told[first] if first < len(told) else None
    held = told[first - 1] if first else None
    tokens = (held or told[0]).prompt or 0
    return Cliff(held.prefixes if held else 0, fell.prefixes if fell else None, tokens)


def _share(samples: Iterable[Sample]) -> float | None:
    told = [(one.cached, one.prompt) for one in samples if one.cached is not None and one.prompt]
    return sum(cached for cached, _ in told) / sum(prompt for _, prompt in told) if told else None
