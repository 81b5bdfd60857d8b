"""Samples -> how far one group of them is from another, in per cent. Pure."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from probes.bench.servers import Sample
from probes.bench.stats import Estimate, Pair, paired_change, pooled_change

Value = Callable[[Sample], float | None]
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Change:
    """How far one group is from another, paired by repetition: -0.5 is half of it."""

    mode: str
    at: float
    what: str
    against: str
    change: Estimate
    ours: float  # median, seconds
    theirs: float


def changes(samples: Sequence[Sample]) -> list[Change]:
    """Return the comparisons of each mode, TTFT first."""
    good = [one for one in samples if one.ttft is not None and one.kind != "prime"]
    made = [
        *_article(good),
        *_by_place(good, "length", ("on", "warm"), ("on", "cold")),
        *_by_place(good, "length", ("on", "warm"), ("off", "warm")),
        *_shares(good),
        *_pooled(good, "load", ("on", "warm"), ("off", "warm"), ("TTFT", "off")),
        *_by_place(good, "chat", ("on", "warm"), ("off", "warm")),
        *_pooled(good, "prefixes", ("on", "warm"), ("on", "cold"), ("TTFT, asked again", "on, cold")),
    ]
    return [one for one in made if one]


def ttft(one: Sample) -> float | None:
    """Return the time to the first token, in seconds; None if the request failed."""
    return one.ttft


def values(samples: Iterable[Sample], value: Value) -> list[float]:
    """Return what the samples have of it."""
    return [found for one in samples if (found := value(one)) is not None]


def by_repetition(samples: Iterable[Sample]) -> dict[tuple[str, int], list[Sample]]:
    """Return the samples that belong together, by arm and repetition."""
    groups: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for one in samples:
        groups[one.arm, one.repetition].append(one)
    return groups


def _article(samples: Sequence[Sample]) -> list[Change | None]:
    """Compare the five-round means of each repetition, and the warm rounds alone; only whole repetitions."""
    of = by_repetition(one for one in samples if one.mode == "article")
    whole = {key: own for key, own in of.items() if len(own) == ROUNDS}

    def means(arm: str, value: Value, kinds: Sequence[str]) -> dict[int, float]:
        return {
            repetition: statistics.fmean(values([one for one in own if one.kind in kinds], value))
            for (owner, repetition), own in whole.items()
            if owner == arm
        }

    both, warm, cold = ("cold", "warm"), ("warm",), ("cold",)
    on, off = "on", "off"
    made = [
        ("five-round mean TTFT", "off", means(on, ttft, both), means(off, ttft, both)),
        ("TTFT of rounds 2-5", "off", means(on, ttft, warm), means(off, ttft, warm)),
        ("TTFT of rounds 2-5", "round 1", means(on, ttft, warm), means(on, ttft, cold)),
        ("five-round mean total", "off", means(on, _total, both), means(off, _total, both)),
    ]
    return [_paired(("article", 0), *one) for one in made]


def _by_place(
    samples: Sequence[Sample], mode: str, ours: tuple[str, str], theirs: tuple[str, str]
) -> list[Change | None]:
    places = sorted({one.at for one in samples if one.mode == mode})
    what = f"TTFT, {ours[1]}", f"{theirs[0]}, {theirs[1]}"
    made = []
    for at in places:
        here = [one for one in samples if one.mode == mode and one.at == at]
        first, second = (
            {one.repetition: one.ttft or 0.0 for one in here if (one.arm, one.kind) == side} for side in (ours, theirs)
        )
        made.append(_paired((mode, at), *what, first, second))
    return made


def _shares(samples: Sequence[Sample]) -> list[Change | None]:
    here = [one for one in samples if one.mode == "share"]
    by_share: dict[float, dict[int, float]] = defaultdict(dict)
    for one in here:
        by_share[one.at][one.repetition] = one.ttft or 0.0
    none = by_share.get(0, {})
    return [_paired(("share", at), "TTFT", "0 % shared", by_share[at], none) for at in sorted(by_share) if at]


def _pooled(
    samples: Sequence[Sample], mode: str, ours: tuple[str, str], theirs: tuple[str, str], what: tuple[str, str]
) -> list[Change | None]:
    """Compare two groups of several requests in each repetition."""
    made: list[Change | None] = []
    for at in sorted({one.at for one in samples if one.mode == mode}):
        here = [one for one in samples if (one.mode, one.at) == (mode, at)]
        first, second = (
            {number: own for (_, number), own in by_repetition(s for s in here if (s.arm, s.kind) == side).items()}
            for side in (ours, theirs)
        )
        both = [(values(first[one], ttft), values(second[one], ttft)) for one in first if one in second]
        if found := pooled_change(both):
            sides = (statistics.median(chain.from_iterable(side)) for side in zip(*both, strict=True))
            made.append(Change(mode, at, *what, found, *sides))
    return made


def _paired(
    place: tuple[str, float], what: str, against: str, ours: dict[int, float], theirs: dict[int, float]
) -> Change | None:
    pairs: list[Pair] = [(ours[number], theirs[number]) for number in ours if number in theirs]
    found = paired_change(pairs)
    if found is None:
        return None
    sides = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Change(*place, what, against, found, *sides)


def _total(one: Sample) -> float | None:
    return one.total
