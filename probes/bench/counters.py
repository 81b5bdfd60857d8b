"""The engine's counters around a stage -> what happened there, and whether it was ours alone. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from exporter.snapshot import Cache, Histogram, Snapshot
from exporter.window import State, known_sum, window
from probes.bench.run import Reading
from probes.bench.servers import Sample

NOT_READ: Final = "not read"
WORST_FIRST: Final = (State.RESTARTED, State.INVALID, State.HITTING)
SUMS: Final = (
    *("sent_requests", "sent_prompt", "usage_cached", "requests", "prompt", "hits"),
    *("reallocated_blocks", "preemptions"),
)
MEANS: Final = ("ttft", "queue", "prefill", "e2e")
SPARE: Final = 0.01  # of our tokens, that an engine may count beyond them without being suspected of other traffic


@dataclass(frozen=True, slots=True)
class Mean:
    """An engine's mean of `n` requests, in seconds."""

    value: float
    n: int


@dataclass(frozen=True, slots=True)
class Window:
    """One stage by the account of one engine. Tokens, 0..1 ratios; None = not exposed."""

    stage: str
    arms: str  # on, off, or both where one server has both
    state: str
    sent_requests: int
    sent_prompt: int  # tokens, as the answers say
    usage_cached: int | None  # tokens, as the answers say
    requests: int | None = None
    prompt: float | None = None
    hits: float | None = None
    hit_ratio: float | None = None
    reallocated_blocks: int | None = None  # tracked blocks given to another use: evicted ones, and unhashed tails
    preemptions: float | None = None
    kv_usage: float | None = None  # at the stage's end
    peak_kv_usage: float | None = None  # of readings once a second, under load only
    ttft: Mean | None = None
    queue: Mean | None = None
    prefill: Mean | None = None  # scheduled to first token
    e2e: Mean | None = None
    other_traffic: str = ""  # what shows it


def windows(readings: Iterable[Reading]) -> list[Window]:
    """Return the window of each stage on each server; a stage of several readings is summed up."""
    pieces: dict[tuple[str, str], list[Window]] = defaultdict(list)
    for reading in readings:
        pieces[reading.stage, reading.arms].append(of_reading(reading))
    return [_summed(own) for own in pieces.values()]


def of_reading(reading: Reading) -> Window:
    """Return the window of one stage on one server."""
    before, after = (scrape.snapshot if scrape else None for scrape in (reading.before, reading.after))
    told = [one for one in reading.samples if one.cached is not None]
    sent = {
        "stage": reading.stage,
        "arms": reading.arms,
        "sent_requests": len(reading.samples),
        "sent_prompt": sum(one.prompt or 0 for one in reading.samples),
        "usage_cached": sum(one.cached or 0 for one in told) if told else None,
    }
    if before is None or after is None:
        return Window(state=NOT_READ, **sent)  # type: ignore[arg-type]
    seen = window(before, after)
    if seen.state is State.RESTARTED:
        return Window(state=seen.state, other_traffic="the engine restarted", **sent)  # type: ignore[arg-type]
    ttft = _mean(before, after, lambda cache: cache.ttft)
    lifetimes = _mean(before, after, lambda cache: cache.block_lifetime)
    usages = [cache.kv_usage for cache in after.caches if cache.kv_usage is not None]
    has_lifetimes = any(cache.block_lifetime for cache in after.caches)
    return Window(
        state=seen.state,
        requests=ttft.n if ttft else None,
        prompt=seen.prompt,
        hits=seen.hits,
        hit_ratio=seen.hit_ratio,
        reallocated_blocks=(lifetimes.n if lifetimes else 0) if has_lifetimes else None,
        preemptions=seen.preemptions,
        kv_usage=max(usages, default=None),
        peak_kv_usage=reading.peak_usage,
        ttft=ttft,
        queue=_mean(before, after, lambda cache: cache.queue),
        prefill=_mean(before, after, lambda cache: cache.prefill),
        e2e=_mean(before, after, lambda cache: cache.e2e),
        other_traffic=_others(ttft, seen.prompt, reading.samples),
        **sent,  # type: ignore[arg-type]
    )


def _summed(pieces: Sequence[Window]) -> Window:
    """Return several windows as one; those that were not read are left out where others were."""
    read = [one for one in pieces if one.state != NOT_READ] or pieces
    rated = [one for one in read if one.hit_ratio is not None]
    weights = [one.prompt or one.sent_prompt for one in rated]
    hits = sum((one.hit_ratio or 0) * weight for one, weight in zip(rated, weights, strict=True))
    summed: dict[str, Any] = {name: known_sum(getattr(one, name) for one in read) for name in SUMS}
    pooled: dict[str, Any] = {name: _pooled(getattr(one, name) for one in read) for name in MEANS}
    return replace(
        read[-1],
        state=next((state for state in WORST_FIRST for one in read if one.state == state), read[-1].state),
        hit_ratio=hits / sum(weights) if sum(weights) else None,
        peak_kv_usage=max((one.peak_kv_usage for one in read if one.peak_kv_usage is not None), default=None),
        other_traffic=next((one.other_traffic for one in read if one.other_traffic), ""),
        **summed,
        **pooled,
    )


def _pooled(means: Iterable[Mean | None]) -> Mean | None:
    known = [mean for mean in means if mean]
    count = sum(mean.n for mean in known)
    return Mean(sum(mean.value * mean.n for mean in known) / count, count) if count else None


def _others(ttft: Mean | None, prompt: float | None, samples: Iterable[Sample]) -> str:
    """Return what the engine counted beyond the bench's own requests, "" if nothing."""
    samples = list(samples)
    if ttft and ttft.n > len(samples):
        return f"the engine counted {ttft.n} requests, {len(samples)} of them the bench's"
    sent = sum(one.prompt or 0 for one in samples)
    failed = any(one.error for one in samples)  # their lengths are not known
    if prompt and not failed and prompt > sent * (1 + SPARE):
        return f"the engine counted {prompt:.0f} prompt tokens, {sent} of them the bench's"
    return ""


def _mean(before: Snapshot, after: Snapshot, read: Callable[[Cache], Histogram | None]) -> Mean | None:
    """Return the mean of what a histogram gained between the two, over all caches; None where nothing."""
    earlier = {(cache.model_name, cache.engine): read(cache) for cache in before.caches}
    count = total = 0.0
    for cache in after.caches:
        last, first = read(cache), earlier.get((cache.model_name, cache.engine))
        if last:
            count += last.count - (first.count if first else 0)
            total += last.sum - (first.sum if first else 0)
    return Mean(total / count, round(count)) if count > 0 else None
