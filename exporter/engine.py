"""What engines expose: the one place that spells their metric names, as data with version ranges.

A *field* is a quantity we want; a *spelling* is one name an engine gave it, in one unit, from one release to
another. Versions were read off real engines and wheels: `since` is the first inspected release that has the
name, `until` the first one without it. To follow a rename, add a spelling; nothing else changes.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

Version = tuple[int, ...]
NEVER: Final[Version] = (10_000,)


class Dialect(StrEnum):
    """A family of engines that count alike."""

    VLLM_V0 = "vllm-v0"
    VLLM_V1 = "vllm-v1"
    SGLANG = "sglang"


class Kind(StrEnum):
    """How a field is exposed, which decides the suffixes of its samples."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Unit(StrEnum):
    """What a counter counts. Blocks and tokens are never added."""

    TOKENS = "tokens"
    BLOCKS = "blocks"
    ONE = ""


class Merge(StrEnum):
    """How samples combine that differ only in labels we do not keep (`pid`, tensor-parallel rank, worker)."""

    SUM = "sum"
    MAX = "max"
    SAME = "same"  # all must agree, else the field is left out


@dataclass(frozen=True, slots=True, eq=False)
class Spelling:
    """One name of a field, without the engine's prefix and without `_total`."""

    name: str
    dialects: tuple[Dialect, ...]
    since: Version = (0,)
    until: Version = NEVER
    unit: Unit = Unit.ONE
    by_default: bool = True  # False: only behind a flag, so its absence is no fault
    merge: Merge | None = None  # where it is not the field's

    def covers(self, dialect: Dialect, version: Version) -> bool:
        """Whether an engine of this dialect and version exposes the name."""
        return dialect in self.dialects and self.since <= version < self.until


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One quantity and its spellings, the preferred one first."""

    name: str
    kind: Kind
    spellings: tuple[Spelling, ...]
    merge: Merge = Merge.SUM
    split: str = ""  # the label that divides the field, kept as it is
    bounds: tuple[float, ...] | None = None  # histogram bounds passed on; None = all of them
    largest: float = math.inf

    def passes(self, bound: float) -> bool:
        """Whether a histogram's bucket is passed on; one whose bound cannot be read is, so that it is found out."""
        return self.bounds is None or bound in self.bounds or not math.isfinite(bound)


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Where a sample of a given exposed name belongs."""

    field: Field
    spelling: Spelling
    part: str  # "value", or for histograms "bucket", "sum", "count"
    lead: str = ""  # what stands before the spelling's name, such as "vllm:"


V0: Final = (Dialect.VLLM_V0,)
V1: Final = (Dialect.VLLM_V1,)
VLLM: Final = V0 + V1
SGLANG: Final = (Dialect.SGLANG,)
TOKENS, BLOCKS = Unit.TOKENS, Unit.BLOCKS
ANY: Final = VLLM + SGLANG

# Thinned bounds stay exact at those kept: buckets are cumulative.
TTFT_BOUNDS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0),
)
WAIT_BOUNDS: Final = (0.3, 1.0, 10.0)  # 0.3 s is the engine's first bound: below it only sum and count tell
RESIDENCY_BOUNDS: Final = (1.0, 10.0, 60.0, 600.0)

FIELDS: Final = (
    Field(
        "queried",
        Kind.COUNTER,
        (
            Spelling("prefix_cache_queries", V1, (0, 9, 2), unit=TOKENS),
            # Tokens from 0.9.2 on, blocks before; a scrape that has this name alone says which in its HELP.
            Spelling("gpu_prefix_cache_queries", V1, (0, 7, 3), (0, 11, 2), unit=BLOCKS),
            Spelling("prompt_tokens", SGLANG, unit=TOKENS),  # its radix tree is asked for every prompt token
        ),
    ),
    Field(
        "hit",
        Kind.COUNTER,
        (
            Spelling("prefix_cache_hits", V1, (0, 9, 2), unit=TOKENS),
            Spelling("gpu_prefix_cache_hits", V1, (0, 7, 3), (0, 11, 2), unit=BLOCKS),
            Spelling("cached_tokens", SGLANG, unit=TOKENS),
        ),
        split="cache_source",
    ),
    Field(
        "external_queried",
        Kind.COUNTER,
        (Spelling("external_prefix_cache_queries", V1, (0, 11, 2), unit=TOKENS),),
    ),
    Field("external_hit", Kind.COUNTER, (Spelling("external_prefix_cache_hits", V1, (0, 11, 2), unit=TOKENS),)),
    Field("prompt", Kind.COUNTER, (Spelling("prompt_tokens", ANY, unit=TOKENS),)),
    Field(
        "prompt_by_source",
        Kind.COUNTER,
        # 0.16.0 alone counts the one recomputed token of a fully cached prompt in two of its sources.
        (Spelling("prompt_tokens_by_source", V1, (0, 16), unit=TOKENS),),
        split="source",
    ),
    Field(
        "preemptions",
        Kind.COUNTER,
        (
            Spelling("num_preemptions", V0),
            Spelling("num_preemptions", V1, (0, 8, 5)),
            Spelling("num_retracted_requests", SGLANG, by_default=False, merge=Merge.MAX),
        ),
    ),
    Field(
        "kv_usage",
        Kind.GAUGE,
        (
            Spelling("kv_cache_usage_perc", V1, (0, 9, 2)),
            Spelling("gpu_cache_usage_perc", VLLM, until=(0, 11, 2)),
            Spelling("token_usage", SGLANG),
        ),
        merge=Merge.MAX,
        largest=1.0,
    ),
    Field(
        "running",
        Kind.GAUGE,
        # Each tensor-parallel rank of SGLang tells of the same requests.
        (Spelling("num_requests_running", VLLM), Spelling("num_running_reqs", SGLANG, merge=Merge.MAX)),
    ),
    Field(
        "waiting",
        Kind.GAUGE,
        (Spelling("num_requests_waiting", VLLM), Spelling("num_queue_reqs", SGLANG, merge=Merge.MAX)),
    ),
    Field(
        "reported_hit_ratio",
        Kind.GAUGE,
        # A lifetime average of blocks; -1 says that caching is off. Hidden by default in 0.8, gone in 0.9.
        (
            Spelling("gpu_prefix_cache_hit_rate", V0, until=(0, 8)),
            Spelling("gpu_prefix_cache_hit_rate", V0, (0, 8), (0, 9), by_default=False),
        ),
        merge=Merge.SAME,
        largest=1.0,
    ),
    Field(
        "ttft",
        Kind.HISTOGRAM,
        (Spelling("time_to_first_token_seconds", ANY),),
        bounds=TTFT_BOUNDS,
    ),
    Field(
        "queue",
        Kind.HISTOGRAM,
        (
            Spelling("request_queue_time_seconds", VLLM),
            Spelling("queue_time_seconds", SGLANG, by_default=False),
        ),
        bounds=WAIT_BOUNDS,
    ),
    Field(
        "prefill",
        Kind.HISTOGRAM,
        (Spelling("request_prefill_time_seconds", VLLM),),
        bounds=WAIT_BOUNDS,
    ),
    Field(
        "block_lifetime",
        Kind.HISTOGRAM,
        (Spelling("kv_block_lifetime_seconds", V1, (0, 12), by_default=False),),
        bounds=RESIDENCY_BOUNDS,
    ),
    Field(
        "block_idle",
        Kind.HISTOGRAM,
        (Spelling("kv_block_idle_before_evict_seconds", V1, (0, 12), by_default=False),),
        bounds=RESIDENCY_BOUNDS,
    ),
    Field(
        "block_reuse_gap",
        Kind.HISTOGRAM,
        (Spelling("kv_block_reuse_gap_seconds", V1, (0, 12), by_default=False),),
        bounds=RESIDENCY_BOUNDS,
    ),
    # Not exported: evidence for the verdict.
    Field("e2e", Kind.HISTOGRAM, (Spelling("e2e_request_latency_seconds", ANY, by_default=False),), bounds=()),
    Field("prompt_length", Kind.HISTOGRAM, (Spelling("request_prompt_tokens", VLLM, by_default=False),), bounds=()),
    Field(
        "drafts",
        Kind.COUNTER,
        (
            Spelling("spec_decode_num_drafts", V1, by_default=False),
            Spelling("spec_decode_num_draft_tokens", V0, by_default=False),
        ),
    ),
    Field(
        "cache_config",
        Kind.INFO,
        (
            Spelling("cache_config_info", V0),
            Spelling("cache_config_info", V1, (0, 8, 5)),
            Spelling("cache_config_info", SGLANG, by_default=False),
        ),
    ),
)

# The only name without an engine's prefix: it comes from the client library, and not in every serving mode.
START_TIME: Final = Field(
    "start_time", Kind.GAUGE, (Spelling("process_start_time_seconds", ANY, by_default=False),), Merge.MAX
)

# Ray, KServe and collectors put a name in front, collectors the engine's own; Ray and OpenTelemetry write `_` for `:`.
_PREFIXED: Final = re.compile(r"((?:(?:ray|kserve|vllm|sglang)[_.])*(vllm|sglang)[:_.])(.+)")
_PREFIX_OF: Final = {Dialect.VLLM_V0: "vllm", Dialect.VLLM_V1: "vllm", Dialect.SGLANG: "sglang"}
_SUFFIXES: Final = {
    Kind.COUNTER: {"_total": "value", "": "value"},
    Kind.GAUGE: {"": "value"},
    Kind.INFO: {"": "value"},
    Kind.HISTOGRAM: {"_bucket": "bucket", "_sum": "sum", "_count": "count"},
}


def _index() -> dict[tuple[str, str], tuple[Route, ...]]:
    table: dict[tuple[str, str], tuple[Route, ...]] = {}
    for field in FIELDS:
        for spelling in field.spellings:
            for prefix in {_PREFIX_OF[dialect] for dialect in spelling.dialects}:
                for suffix, part in _SUFFIXES[field.kind].items():
                    key = (prefix, spelling.name + suffix)
                    earlier = table.get(key, ())
                    if not any(route.field is field for route in earlier):
                        table[key] = (*earlier, Route(field, spelling, part))
    return table


_ROUTES: Final = _index()
_START_ROUTE: Final = (Route(START_TIME, START_TIME.spellings[0], "value"),)


@lru_cache(maxsize=16_384)
def routes(name: str) -> tuple[Route, ...]:
    """Return the fields that a sample of this exposed name feeds; empty for the many names we do not want."""
    match = _PREFIXED.fullmatch(name)
    if match:
        return tuple(replace(route, lead=match[1]) for route in _ROUTES.get((match[2], match[3]), ()))
    return _START_ROUTE if name == START_TIME.spellings[0].name else ()


def exposed_name(spelling: Spelling, kind: Kind, dialect: Dialect) -> str:
    """Return the name as the engine itself writes it, a histogram's without suffix."""
    return f"{_PREFIX_OF[dialect]}:{spelling.name}{'_total' if kind is Kind.COUNTER else ''}"


@lru_cache
def expected(dialect: Dialect, version: Version) -> tuple[Field, ...]:
    """Return the fields that an engine of this dialect and version exposes without further flags."""
    return tuple(
        field
        for field in FIELDS
        if any(spelling.by_default and spelling.covers(dialect, version) for spelling in field.spellings)
    )


_SPEAKERS: Final = {
    name: {dialect for field in FIELDS for s in field.spellings if s.name == name for dialect in s.dialects}
    for name in {s.name for field in FIELDS for s in field.spellings}
}


def identify(found: Iterable[Spelling]) -> tuple[Dialect | None, Version]:
    """Tell the dialect, and the oldest version that has all the names found, from the names alone.

    Names that several dialects share decide nothing, but for those that V1 dropped: V1 had its own beside them.
    Without a telling name the dialect is None.
    """
    for dialect in (Dialect.SGLANG, Dialect.VLLM_V1, Dialect.VLLM_V0):
        own = [spelling for spelling in found if _SPEAKERS[spelling.name] == {dialect}]
        if own:
            return dialect, max(spelling.since for spelling in own)
    dropped = any(Dialect.VLLM_V0 in spelling.dialects and spelling.until < NEVER for spelling in found)
    return (Dialect.VLLM_V0 if dropped else None), (0,)


_BY_NAME: Final = {field.name: field for field in FIELDS}
QUERIED: Final = _BY_NAME["queried"]
HIT: Final = _BY_NAME["hit"]
TOKENS_SINCE: Final = QUERIED.spellings[0].since  # the old name counts tokens too from the release of the new one on
CACHE_CONFIG: Final = _BY_NAME["cache_config"]
CACHING_OFF: Final = -1.0  # what V0's hit-rate gauge says then
