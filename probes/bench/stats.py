"""Medians with bootstrap intervals. Pure; seeded, so that the same samples always give the same interval.

What is drawn anew is a repetition, never one of several requests that were sent together: what slowed one down slowed
its neighbours too, so that drawn one by one they would seem to be more evidence than they are.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar

RESAMPLES: Final = 2000
LEVEL: Final = 0.95
ENOUGH: Final = 6  # repetitions: with fewer, not even smallest to largest holds the median 95 times in 100
Pair = tuple[float, float]
Group = Sequence[float]  # samples of one repetition
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of `n` repetitions and its 95 % interval, which is None where they are too few for one."""

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


def pooled_median(groups: Sequence[Group]) -> Estimate | None:
    """Return the median of all samples; None of no groups."""
    return bootstrap(groups, _median)


def paired_change(pairs: Sequence[Pair]) -> Estimate | None:
    """Return how far the median of the first members is from that of the second, -0.5 = half of it.

    Pairs are drawn whole, so that what moved both does not widen the interval.
    """
    return pooled_change([((ours,), (theirs,)) for ours, theirs in pairs])


def pooled_change(pairs: Sequence[tuple[Group, Group]]) -> Estimate | None:
    """Return the same of pairs of groups, of all their samples."""
    return bootstrap(pairs, lambda drawn: _quotient(*zip(*drawn, strict=True)))


def pooled_difference(pairs: Sequence[tuple[Group, Group]]) -> Estimate | None:
    """Return the median of all first samples less that of all second ones, groups drawn in pairs."""
    return bootstrap(pairs, lambda drawn: _difference(*zip(*drawn, strict=True)))


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the value below which that share of the samples lies, between two samples by interpolation."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _median(groups: Sequence[Group]) -> float:
    return statistics.median(chain.from_iterable(groups))


def _quotient(ours: Sequence[Group], theirs: Sequence[Group]) -> float:
    return _median(ours) / _median(theirs) - 1


def _difference(ours: Sequence[Group], theirs: Sequence[Group]) -> float:
    return _median(ours) - _median(theirs)
