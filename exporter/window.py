"""Two snapshots of one target -> what happened between them: the hit ratio of that window, or why there is none.

The ratio is a quotient of two sums over the same caches, 0..1. A cache gives cached and prompt tokens where it
counts them, since lookups may be repeated; else hits and queries.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

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
    INVALID = "invalid"  # more was found than looked up
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


class _Counts(NamedTuple):
    """Counters of one cache, or how much they rose; None = not exposed."""

    queries: float | None
    hits: float | None
    prompt: float | None
    preemptions: float | None
    cached: float | None

    @property
    def pair(self) -> tuple[float, float] | None:
        """Tokens found and tokens looked up; None unless both are known, since half a pair has no quotient."""
        return None if self.hits is None or self.queries is None else (self.hits, self.queries)

    @property
    def best_pair(self) -> tuple[float, float] | None:
        """The same, of prompt tokens where these are counted."""
        return self.pair if self.cached is None or self.prompt is None else (self.cached, self.prompt)


def window(before: Snapshot, after: Snapshot, canary: Tokens = NO_CANARY) -> Window:
    """Compare two snapshots of one target, the earlier one first."""
    pairs = _pairs(before, after)
    rises = [_rise(first, last) for first, last in pairs]
    if _restarted(before, after) or any(_began_anew(*pair, rise) for pair, rise in zip(pairs, rises, strict=True)):
        return Window(State.RESTARTED)
    if Fault.HITS_EXCEED_QUERIES in after.faults | before.faults:
        return Window(State.INVALID)
    whole = [rise for rise in rises if rise.pair]
    if not whole:
        return _without_counters(after, known_sum(rise.prompt for rise in rises))
    unit = after.caches[0].unit
    sent = canary if unit is Unit.TOKENS else NO_CANARY  # what the canary sent is known in tokens only
    hits, queries = _less(_total(rise.pair for rise in whole), sent)
    found, of = _less(_total(rise.best_pair for rise in whole), sent)
    if not of:  # a prompt is counted at its first token only, after its lookup
        found, of = hits, queries
    if hits > queries or found > of:
        return Window(State.INVALID)
    prompt = known_sum(rise.prompt for rise in whole)
    prompt = None if prompt is None else max(prompt - sent.prompt, 0.0)
    ratio = found / of if queries > 0 else None
    by_lookups = unit is Unit.TOKENS and any(rise.cached is None for rise in whole)
    inflated = by_lookups and prompt is not None and queries > prompt > 0
    return Window(
        state=_state(ratio, prompt),
        unit=unit,
        queries=queries,
        hits=hits,
        prompt=prompt,
        preemptions=known_sum(rise.preemptions for rise in rises),
        hit_ratio=ratio,
        lifetime_hit_ratio=lifetime_hit_ratio(after),
        quality=Quality.INFLATED if inflated else Quality.EXACT,
    )


def lifetime_hit_ratio(snapshot: Snapshot) -> float | None:
    """Return hits over queries since the engine's start, 0..1; it hides what happened lately."""
    hits, queries = _total(_counts(cache).pair for cache in snapshot.caches)
    return hits / queries if queries else None


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


def _restarted(before: Snapshot, after: Snapshot) -> bool:
    return bool(before.start_time and after.start_time and before.start_time != after.start_time)


def _began_anew(before: Cache, after: Cache, rise: _Counts) -> bool:
    """Whether a counter fell, or counts in another unit than it did: an engine of another version."""
    other_unit = before.unit is not after.unit and rise.queries is not None
    return other_unit or any(value is not None and value < 0 for value in rise)


def _pairs(before: Snapshot, after: Snapshot) -> list[tuple[Cache, Cache]]:
    earlier = {(cache.model_name, cache.engine): cache for cache in before.caches}
    return [(earlier[key], cache) for cache in after.caches if (key := (cache.model_name, cache.engine)) in earlier]


def _counts(cache: Cache) -> _Counts:
    cached = cache.prompt_by_source.get("local_cache_hit")
    return _Counts(cache.queried, cache.hit, cache.prompt, cache.preemptions, cached)


def _rise(before: Cache, after: Cache) -> _Counts:
    both = zip(_counts(before), _counts(after), strict=True)
    return _Counts(*(None if first is None or last is None else last - first for first, last in both))


def _total(pairs: Iterable[tuple[float, float] | None]) -> tuple[float, float]:
    """Add up found and looked-up tokens of those that have both."""
    known = [pair for pair in pairs if pair]
    return sum(found for found, _ in known), sum(of for _, of in known)


def _less(pair: tuple[float, float], canary: Tokens) -> tuple[float, float]:
    return max(pair[0] - canary.cached, 0.0), max(pair[1] - canary.prompt, 0.0)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Add up what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
