"""Samples -> `Snapshot`: what one answer says of each prefix cache behind it. What is absent stays None.

A prefix cache belongs to one data-parallel rank of one model. Values that cannot be true are left out and
named in `faults`; nothing is repaired, clamped or guessed.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from exporter import engine
from exporter.engine import Dialect, Field, Kind, Merge, Spelling, Unit, Version
from exporter.facts import NO_FACTS, Facts, facts_by_engine
from exporter.parse import Labels, Sample, parse, stated_unit


class Fault(StrEnum):
    """Why a value was left out although the engine sent one."""

    NOT_FINITE = "not_finite"
    NEGATIVE = "negative"
    OUT_OF_RANGE = "out_of_range"  # a fraction above 1
    CONFLICT = "conflict"  # one series twice with two values, or processes that disagree
    HITS_EXCEED_QUERIES = "hits_exceed_queries"
    BAD_HISTOGRAM = "bad_histogram"  # falling buckets, no +Inf, no sum, or a count that is another


class NoEngineSeriesError(ValueError):
    """The text is well-formed and has not one series of an engine that we know."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound, ending with +Inf, and the sum of the observations in seconds."""

    buckets: tuple[tuple[float, float], ...]
    sum: float

    @property
    def count(self) -> float:
        """Number of observations."""
        return self.buckets[-1][1]


@dataclass(frozen=True, slots=True)
class Cache:
    """One prefix cache. Counters run since the engine's start; ratios and usage are 0..1; times in seconds."""

    model_name: str
    engine: str
    facts: Facts
    unit: Unit = Unit.TOKENS  # of `queried` and `hit`
    queried: float | None = None
    hit: float | None = None
    external_queried: float | None = None
    external_hit: float | None = None
    prompt: float | None = None
    prompt_by_source: Mapping[str, float] = field(default_factory=dict)
    preemptions: float | None = None
    kv_usage: float | None = None
    running: float | None = None
    waiting: float | None = None
    reported_hit_ratio: float | None = None
    ttft: Histogram | None = None
    queue: Histogram | None = None
    prefill: Histogram | None = None
    block_lifetime: Histogram | None = None
    block_idle: Histogram | None = None
    block_reuse_gap: Histogram | None = None
    e2e: Histogram | None = None
    prompt_length: Histogram | None = None  # tokens
    drafts: float | None = None  # of speculative decoding; None where there is none


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer of one engine server, at one instant."""

    dialect: Dialect | None
    version: str  # as the engine states it, else the oldest that fits, as ">=0.16"; "" = unknown
    start_time: float | None  # Unix seconds
    caches: tuple[Cache, ...]
    found: Mapping[str, bool]  # field that this engine should have -> whether it has it
    faults: frozenset[Fault]


Key = tuple[str, str]  # model name, engine
Found = Mapping[tuple[str, Labels], float]  # one field of one cache: part and labels -> value
DEVICE_SOURCES: Final = frozenset({"", "device", "total"})  # total: where SGLang does not part them
PAIRS: Final = (("hit", "queried"), ("external_hit", "external_queried"))


def snapshot(text: str, version: str = "") -> Snapshot:
    """Read an exposition; `version` is what the engine's `/version` says, "" where it was not asked.

    Raises ParseError on malformed text and NoEngineSeriesError on text without an engine's series.
    """
    by_field = _by_field(parse(text))
    if any(_bare(group) for group in by_field.values()):
        by_field = _by_field(parse(text, every_bound=True))
    start_times = by_field.pop(engine.START_TIME, [])
    if not by_field:
        raise NoEngineSeriesError("no series of vLLM or SGLang among what it exposes")

    faults: set[Fault] = set()
    dialect, oldest = engine.identify([group[0].route.spelling for group in by_field.values()])
    stated = _version(version)
    newest = max(stated, oldest)  # a build from source calls itself 0.1.dev1
    if dialect is None and stated >= (0, 11, 2):
        dialect = Dialect.VLLM_V1  # V0 was gone by then
    keys = _Keys(by_field)
    values: dict[Key, dict[str, object]] = defaultdict(dict)
    for fld, group in by_field.items():
        if fld.kind is Kind.INFO:
            continue
        for key, value in _merged(fld, group, keys, faults).items():
            values[key][fld.name] = value
    with_hits = {keys.of(sample.labels) for sample in by_field.get(engine.HIT, [])}
    for key, of_cache in values.items():
        if dialect is Dialect.SGLANG and "queried" in of_cache and key not in with_hits:
            of_cache["hit"] = {}  # its counter is first there when something was found
        _split_tiers(of_cache, dialect)
        _drop_impossible(of_cache, faults)
    valued = {name for of_cache in values.values() for name in of_cache}
    valued -= {name for of_cache in values.values() for name in _drop_halves(of_cache, dialect)}
    if engine.CACHE_CONFIG in by_field:
        valued.add(engine.CACHE_CONFIG.name)
    unit = _unit(by_field, newest, text)
    facts = facts_by_engine([s.labels for s in by_field.get(engine.CACHE_CONFIG, [])], keys.engines)
    caches = tuple(_cache(key, values[key], unit, facts.get(key[1], NO_FACTS)) for key in sorted(values))
    return Snapshot(
        dialect=dialect,
        version=version or (">=" + ".".join(map(str, oldest)) if any(oldest) else ""),
        start_time=max((s.value for s in start_times if math.isfinite(s.value)), default=None),
        caches=caches,
        found=_found(dialect, newest, set(by_field), valued, text),
        faults=frozenset(faults),
    )


def _by_field(samples: Iterable[Sample]) -> dict[Field, list[Sample]]:
    """Group by field; of several names in one answer only one counts: the preferred spelling, the shortest lead."""
    groups: dict[Field, dict[tuple[Spelling, str], list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        route = sample.route
        groups[route.field][route.spelling, route.lead].append(sample)
    return {
        fld: by_name[min(by_name, key=lambda name: (fld.spellings.index(name[0]), len(name[1]), name[1]))]
        for fld, by_name in groups.items()
    }


def _bare(group: list[Sample]) -> bool:
    """Whether a histogram has none of our bounds: the operator chose others, and those are worth the more."""
    return bool(group[0].route.field.bounds) and all(
        math.isinf(labels.le) for route, labels, _ in group if route.part == "bucket"
    )


class _Keys:
    """Which cache a sample belongs to, where some series of an answer lack a label that others have."""

    def __init__(self, by_field: Mapping[Field, list[Sample]]) -> None:
        labels = [s.labels for group in by_field.values() for s in group]
        self.engines = {label.engine for label in labels if label.engine is not None} or {"0"}
        models = {label.model for label in labels if label.model}
        self._model = models.pop() if len(models) == 1 else ""
        self._engine = next(iter(self.engines)) if len(self.engines) == 1 else "all"

    def of(self, labels: Labels) -> Key:
        return labels.model or self._model, self._engine if labels.engine is None else labels.engine


def _merged(fld: Field, group: list[Sample], keys: _Keys, faults: set[Fault]) -> dict[Key, object]:
    """Return each cache's value: a number, a Histogram, or numbers by the field's `split` label."""
    unique: dict[Key, dict[tuple[str, Labels], float]] = defaultdict(dict)
    bad: set[Key] = set()
    for route, labels, value in group:
        key = keys.of(labels)
        fault = _fault(fld, value)
        if unique[key].setdefault((route.part, labels), value) != value:
            fault = fault or Fault.CONFLICT
        if fault:
            faults.add(fault)
            bad.add(key)
    merge = group[0].route.spelling.merge or fld.merge
    merged: dict[Key, object] = {}
    for key, found in unique.items():
        if key in bad:
            continue
        result = _histogram(found) if fld.kind is Kind.HISTOGRAM else _number(fld, merge, found)
        if isinstance(result, Fault):
            faults.add(result)
        else:
            merged[key] = result
    return merged


def _fault(fld: Field, value: float) -> Fault | None:
    if 0 <= value <= fld.largest and value != math.inf:
        return None
    if not math.isfinite(value):
        return Fault.NOT_FINITE
    if value > 0:
        return Fault.OUT_OF_RANGE
    return None if fld.name == "reported_hit_ratio" and value == engine.CACHING_OFF else Fault.NEGATIVE


def _number(fld: Field, merge: Merge, found: Found) -> float | dict[str, float] | Fault:
    if fld.split:
        by_split: dict[str, float] = defaultdict(float)
        for (_, labels), value in found.items():
            by_split[dict(labels.rest).get(fld.split, "")] += value
        return dict(by_split)
    values = found.values()
    if merge is Merge.SUM:
        return sum(values)
    if merge is Merge.SAME and len(set(values)) > 1:
        return Fault.CONFLICT
    return max(values)


def _histogram(found: Found) -> Histogram | Fault:
    buckets: dict[float, float] = defaultdict(float)
    totals: dict[str, float] = defaultdict(float)
    for (part, labels), value in found.items():
        if part != "bucket":
            totals[part] += value
            continue
        buckets[labels.le] += value
    if not buckets and "count" in totals:  # some proxies pass sum and count alone
        buckets[math.inf] = totals["count"]
    ordered = sorted(buckets.items())
    counts = [count for _, count in ordered]
    if (
        not ordered
        or ordered[-1][0] != math.inf
        or any(math.isnan(bound) for bound in buckets)
        or "sum" not in totals
        or counts != sorted(counts)
        or totals.get("count", counts[-1]) != counts[-1]
    ):
        return Fault.BAD_HISTOGRAM
    return Histogram(tuple(ordered), totals["sum"])


def _unit(by_field: Mapping[Field, list[Sample]], version: Version, text: str) -> Unit:
    """Tell what the counters count; of a name that counted blocks, then tokens, its HELP or the version tells."""
    group = by_field.get(engine.QUERIED)
    if not group or group[0].route.spelling.unit is Unit.TOKENS:
        return Unit.TOKENS
    route = group[0].route
    by_version = Unit.TOKENS if version >= engine.TOKENS_SINCE else Unit.BLOCKS
    return stated_unit(text, route.lead + route.spelling.name) or by_version


def _split_tiers(values: dict[str, object], dialect: Dialect | None) -> None:
    """Part the hits by where the tokens lay: on the device, or in a tier outside it."""
    hits = values.pop("hit", None)
    if isinstance(hits, dict):
        values["hit"] = sum((value for source, value in hits.items() if source in DEVICE_SOURCES), 0.0)
        if dialect is Dialect.SGLANG:
            values["external_hit"] = sum((value for source, value in hits.items() if source not in DEVICE_SOURCES), 0.0)


def _drop_impossible(values: dict[str, object], faults: set[Fault]) -> None:
    """Leave out both parts of a quotient that would exceed 1."""
    for part, whole in PAIRS:
        hits, queries = values.get(part), values.get(whole)
        if isinstance(hits, float) and isinstance(queries, float) and hits > queries:
            faults.add(Fault.HITS_EXCEED_QUERIES)
            del values[part], values[whole]


def _drop_halves(values: dict[str, object], dialect: Dialect | None) -> set[str]:
    """Leave out what has lost its counterpart, and return the fields that were missed.

    Sums over several caches are divided, and half a pair would be in one of the two sums alone. Prompt tokens by
    source take the place of hits, and count only while there are lookups.
    """
    missed = set()
    for part, whole in PAIRS:
        if part in values and whole not in values and not (part == "external_hit" and dialect is Dialect.SGLANG):
            missed.add(whole)
            del values[part]
        elif whole in values and part not in values:
            missed.add(part)
            if whole != "queried" or "prompt_by_source" not in values:
                del values[whole]
    if "queried" not in values:
        values.pop("prompt_by_source", None)
    return missed


def _cache(key: Key, values: Mapping[str, object], unit: Unit, facts: Facts) -> Cache:
    reported = values.get("reported_hit_ratio")
    if reported is not None:  # the gauge is the engine's own doing, the stated fact only its front end's copy
        facts = facts.with_enabled(reported != engine.CACHING_OFF)
        values = {**values, "reported_hit_ratio": None if reported == engine.CACHING_OFF else reported}
    return Cache(key[0], key[1], facts, unit, **values)  # type: ignore[arg-type]  # fields carry the same names


def _found(dialect: Dialect | None, version: Version, sent: set[Field], valued: set[str], text: str) -> dict[str, bool]:
    """Say of each field that this engine should have whether it has a usable value.

    One that is declared and has no sample yet (a server that has taken no step) is not mentioned.
    """
    dialects = [dialect] if dialect else [Dialect.VLLM_V0, Dialect.VLLM_V1]
    due = [fld for fld in engine.expected(dialects[0], version) if fld in engine.expected(dialects[-1], version)]
    return {
        fld.name: fld.name in valued
        for fld in due
        if fld.name in valued or fld in sent or not _declared(fld, dialects, text)
    }


def _declared(fld: Field, dialects: list[Dialect], text: str) -> bool:
    names = {engine.exposed_name(s, fld.kind, d).removesuffix("_total") for s in fld.spellings for d in dialects}
    return any(re.search(rf'^# TYPE "?{re.escape(name)}(?:_total)?"? ', text, re.MULTILINE) for name in names)


def _version(text: str) -> Version:
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()
