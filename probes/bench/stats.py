"""Medians with bootstrap intervals. Pure; seeded, so that the same samples always give the same interval."""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

RESAMPLES: Final = 2000
LEVEL: Final = 0.95
ENOUGH: Final = 6  # samples: with fewer, not even smallest to largest holds the median 95 times in 100
Pair = tuple[float, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of `n` samples and its 95 % interval, which is None where they are too few for one."""

    value: float
    low: float | None
    high: float | None
    n: int


def bootstrap(samples: Sequence[T], statistic: Callable[[Sequence[T]], float], seed: int = 1) -> Estimate | None:
    """Return the statistic of the samples with its percentile interval; None of no samples."""
    if not samples:
        return None
    value, n = statistic(samples), len(samples)
    if n < ENOUGH:
        return Estimate(value, None, None, n)
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    drawn = [statistic(chance.choices(samples, k=n)) for _ in range(RESAMPLES)]
    return Estimate(value, quantile(drawn, (1 - LEVEL) / 2), quantile(drawn, (1 + LEVEL) / 2), n)


def median(samples: Sequence[float]) -> Estimate | None:
    """Return the median; None of no samples."""
    return bootstrap(samples, statistics.median)


def paired_change(pairs: Sequence[Pair]) -> Estimate | None:
    """Return how far the median of the first members is from that of the second, -0.5 = half of it.

    Pairs are drawn whole, so that what moved both does not widen the interval.
    """
    return bootstrap(pairs, _change)


def change(ours: Sequence[float], theirs: Sequence[float]) -> Estimate | None:
    """Return how far the median of ours is from that of theirs, the two drawn independently; `n` is the smaller."""
    if not ours or not theirs:
        return None
    value, n = statistics.median(ours) / statistics.median(theirs) - 1, min(len(ours), len(theirs))
    if n < ENOUGH:
        return Estimate(value, None, None, n)
    chance = random.Random(1)  # noqa: S311
    drawn = [
        statistics.median(chance.choices(ours, k=len(ours))) / statistics.median(chance.choices(theirs, k=len(theirs)))
        for _ in range(RESAMPLES)
    ]
    return Estimate(value, quantile(drawn, (1 - LEVEL) / 2) - 1, quantile(drawn, (1 + LEVEL) / 2) - 1, n)


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the value below which that share of the samples lies, between two samples by interpolation."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _change(pairs: Sequence[Pair]) -> float:
    return statistics.median(ours for ours, _ in pairs) / statistics.median(theirs for _, theirs in pairs) - 1
