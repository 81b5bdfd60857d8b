"""Two snapshots of one target -> what happened between them: the hit ratio of that window, or why there is none.

The ratio is a quotient of sums over the caches, 0..1. It is cached over prompt tokens where the engine counts
them, since lookups may be repeated; else hits over queries.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from exporter.engine import Unit
from exporter.snapshot import Cache, Fault, Snapshot


class State(StrEnum):
    """What a window shows. All but the first two are without a ratio of the window."""

    HITTING = "hitting"
    ZERO = "zero"  # tokens were looked up, none found
    NO_TRAFFIC = "no_traffic"
    NOT_LOOKED_UP = "not_looked_up"  # prompts flowed, no lookup happened
    GAUGE_ONLY = "gauge_only"  # the engine reports a lifetime figure and no counters
    APC_DISABLED = "apc_disabled"
    RESTARTED = "restarted"  # counters began anew
    INVALID = "invalid"  # hits exceed queries
    UNKNOWN = "unknown"  # the engine exposes nothing to tell from


class Quality(StrEnum):
    """Whether the ratio can be taken at its word."""

    EXACT = "exact"
    INFLATED = "inflated"  # lookups outnumber prompt tokens: some requests were looked up again


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that the canary sent in the window, and those of them that were found."""

    prompt: float = 0.0
    cached: float = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """Increases between two snapshots, in `unit`, the canary's share taken off; None = not exposed."""

    state: State
    unit: Unit = Unit.TOKENS
    queries: float | None = None
    hits: float | None = None
    prompt: float | None = None
    preemptions: float | None = None
    hit_ratio: float | None = None
    lifetime_hit_ratio: float | None = None
    quality: Quality = Quality.EXACT


NO_CANARY: Final = Tokens()
Read = Callable[[Cache], float | None]
READS: Final[tuple[Read, ...]] = (
    lambda cache: cache.queried,
    lambda cache: cache.hit,
    lambda cache: cache.prompt,
    lambda cache: cache.preemptions,
    lambda cache: cache.prompt_by_source.get("local_cache_hit"),
)


def window(before: Snapshot, after: Snapshot, canary: Tokens = NO_CANARY) -> Window:
    """Compare two snapshots of one target, the earlier one first."""
    pairs = _pairs(before, after)
    queries, hits, prompt, preemptions, cached = (_increase(pairs, read) for read in READS)
    if _restarted(before, after, (queries, hits, prompt)):
        return Window(State.RESTARTED)
    if Fault.HITS_EXCEED_QUERIES in after.faults | before.faults:
        return Window(State.INVALID)
    if queries is None or hits is None:
        return _without_counters(after, prompt)
    unit = after.caches[0].unit
    if unit is Unit.TOKENS:  # what the canary sent is known in tokens only
        queries, hits = max(queries - canary.prompt, 0.0), max(hits - canary.cached, 0.0)
        prompt = None if prompt is None else max(prompt - canary.prompt, 0.0)
    if hits > queries:
        return Window(State.INVALID)
    ratio = None
    if queries > 0:
        counted = prompt and cached is not None
        ratio = max(cached - canary.cached, 0.0) / prompt if counted else hits / queries  # type: ignore[operator]
    inflated = cached is None and unit is Unit.TOKENS and prompt is not None and queries > prompt > 0
    return Window(
        state=_state(ratio, prompt),
        unit=unit,
        queries=queries,
        hits=hits,
        prompt=prompt,
        preemptions=preemptions,
        hit_ratio=ratio,
        lifetime_hit_ratio=lifetime_hit_ratio(after),
        quality=Quality.INFLATED if inflated else Quality.EXACT,
    )


def lifetime_hit_ratio(snapshot: Snapshot) -> float | None:
    """Return hits over queries since the engine's start, 0..1; it hides what happened lately."""
    queries, hits = (_sum(read(cache) for cache in snapshot.caches) for read in READS[:2])
    return hits / queries if hits is not None and queries else None


def _state(ratio: float | None, prompt: float | None) -> State:
    if ratio is None:
        return State.NOT_LOOKED_UP if prompt else State.NO_TRAFFIC
    return State.HITTING if ratio else State.ZERO


def _without_counters(after: Snapshot, prompt: float | None) -> Window:
    enabled = {cache.facts.prefix_caching_enabled for cache in after.caches}
    reported = [cache.reported_hit_ratio for cache in after.caches if cache.reported_hit_ratio is not None]
    if reported:
        single = reported[0] if len(reported) == 1 else None  # lifetime averages of several caches do not add up
        return Window(State.GAUGE_ONLY, prompt=prompt, hit_ratio=single)
    return Window(State.APC_DISABLED if enabled == {False} else State.UNKNOWN, prompt=prompt)


def _restarted(before: Snapshot, after: Snapshot, increases: Iterable[float | None]) -> bool:
    if before.start_time and after.start_time and before.start_time != after.start_time:
        return True
    return any(increase is not None and increase < 0 for increase in increases)


def _pairs(before: Snapshot, after: Snapshot) -> list[tuple[Cache, Cache]]:
    earlier = {(cache.model_name, cache.engine): cache for cache in before.caches}
    return [(earlier[key], cache) for cache in after.caches if (key := (cache.model_name, cache.engine)) in earlier]


def _increase(pairs: list[tuple[Cache, Cache]], read: Read) -> float | None:
    increases = []
    for before, after in pairs:
        first, last = read(before), read(after)
        increases.append(None if first is None or last is None else last - first)
    if any(increase is not None and increase < 0 for increase in increases):
        return min(increase for increase in increases if increase is not None)
    return _sum(increases)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
