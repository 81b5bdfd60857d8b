"""Samples -> the figures of a run: medians by group, changes in per cent, and what is under a warm request. Pure."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from probes.bench.compare import Change, Value, by_repetition, changes, ttft, values
from probes.bench.counters import Mean, Window
from probes.bench.servers import Sample
from probes.bench.stats import Estimate, median, pooled_median, quantile

Group = tuple[str, float, str, str]  # mode, at, arm, kind
TAIL: Final = 20  # samples from which a 95th percentile is told


@dataclass(frozen=True, slots=True)
class Row:
    """The requests of one group: medians of seconds and tokens."""

    mode: str
    at: float
    arm: str
    kind: str
    requests: int
    failed: int
    ttft: Estimate | None
    ttft_p95: float | None  # of 20 samples or more
    total: Estimate | None
    prompt: float | None
    cached: float | None
    per_second: float | None  # requests, from the first one's start to the last one's end, in each repetition


@dataclass(frozen=True, slots=True)
class Floor:
    """What a warm request's TTFT is made of, in seconds, and which of it reuse cannot save.

    The engine's figures are means of the same requests; prefill is from scheduled to first token.
    """

    warm: Estimate
    cold: Estimate
    warm_prefill: Mean | None
    cold_prefill: Mean | None
    queue: Mean | None
    outside: float | None  # the client's mean TTFT less queue and prefill: network, HTTP, chat template, tokenizer
    warm_computed: float | None  # mean tokens that a prefill had to compute
    cold_computed: float | None
    decode_step: Estimate | None  # a step that computes one token


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a run."""

    samples: Sequence[Sample]
    rows: Sequence[Row]
    changes: Sequence[Change]
    floor: Floor | None
    windows: Sequence[Window]


def figures(samples: Iterable[Sample], windows: Sequence[Window]) -> Figures:
    """Return the figures of all samples and windows of a run."""
    told = known(samples)
    return Figures(told, rows(told), changes(told), floor(told, windows), windows)


def known(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples with what is untold made 0 where that server has told of cached tokens before."""
    samples = list(samples)
    telling = {one.arm for one in samples if one.cached is not None}
    return [
        replace(one, cached=0) if one.cached is None and one.arm in telling and not one.error else one
        for one in samples
    ]


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Return the groups of what is reported, in the order in which they began."""
    groups: dict[Group, list[Sample]] = defaultdict(list)
    for one in samples:
        if one.kind != "prime":
            groups[one.mode, one.at, one.arm, one.kind].append(one)
    return [_row(group, members) for group, members in groups.items()]


def floor(samples: Sequence[Sample], windows: Iterable[Window]) -> Floor | None:
    """Return what is under a warm request; None where that was not measured."""
    of_kind = {
        kind: [s for s in samples if s.mode == "floor" and s.kind == kind and s.ttft is not None]
        for kind in ("warm", "cold")
    }
    warm, cold = (median(values(of_kind[kind], ttft)) for kind in ("warm", "cold"))
    if warm is None or cold is None:
        return None
    by_stage = {one.stage: one for one in windows if one.stage.startswith("floor") and one.requests}
    told = {kind: by_stage.get(f"floor, {kind}") for kind in of_kind}
    prefill = {kind: one.prefill if one and not one.other_traffic else None for kind, one in told.items()}
    queue = told["warm"].queue if told["warm"] else None
    outside = None
    if prefill["warm"] and queue:
        outside = statistics.fmean(values(of_kind["warm"], ttft)) - queue.value - prefill["warm"].value
    computed = {
        kind: statistics.fmean(found) if (found := values(of_kind[kind], _computed)) else None for kind in of_kind
    }
    step = decode_per_token(of_kind["warm"] + of_kind["cold"])
    return Floor(warm, cold, prefill["warm"], prefill["cold"], queue, outside, computed["warm"], computed["cold"], step)


def decode_per_token(samples: Iterable[Sample]) -> Estimate | None:
    """Return the median time of a token after the first, in seconds."""
    return pooled_median(_by_repetition(samples, _decode_step))


def _row(group: Group, members: Sequence[Sample]) -> Row:
    good = [one for one in members if one.ttft is not None]
    ttfts = values(good, ttft)
    walls = [_wall(own) for own in by_repetition(members).values()]
    return Row(
        *group,
        requests=len(members),
        failed=len(members) - len(good),
        ttft=pooled_median(_by_repetition(good, ttft)),
        ttft_p95=quantile(ttfts, 0.95) if len(ttfts) >= TAIL else None,
        total=pooled_median(_by_repetition(good, lambda one: one.total)),
        prompt=_middle([one.prompt for one in good]),
        cached=_middle([one.cached for one in good]),
        per_second=len(good) / sum(walls) if group[0] == "load" and sum(walls) > 0 else None,
    )


def _by_repetition(samples: Iterable[Sample], value: Value) -> list[list[float]]:
    return [found for own in by_repetition(samples).values() if (found := values(own, value))]


def _wall(members: Sequence[Sample]) -> float:
    return max(one.started_at + one.total for one in members) - min(one.started_at for one in members)


def _decode_step(one: Sample) -> float | None:
    if one.ttft is None or not one.completion or one.completion <= 1 or one.buffered:
        return None
    return (one.total - one.ttft) / (one.completion - 1)


def _computed(one: Sample) -> float | None:
    return one.prompt - one.cached if one.prompt is not None and one.cached is not None else None


def _middle(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return statistics.median(told) if told else None
