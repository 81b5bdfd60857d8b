"""Every family that the exporter offers, declared once; scrapes -> families.

Fresh families are built for each scrape, so a series of an engine that is gone is gone too. No ratio over
time is exported: rules divide sums over one window.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from exporter.engine import Unit
from exporter.scrape import Reason, Scrape
from exporter.snapshot import Cache, Fault, Histogram

TARGET: Final = ("target",)
CACHE: Final = ("target", "model_name", "engine")


@dataclass(frozen=True, slots=True)
class Family:
    """One exported family: its type, labels and help, which names unit and source."""

    name: str
    kind: type[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]
    labels: tuple[str, ...]
    help: str

    def empty(self) -> Metric:
        """Return the family without samples."""
        return self.kind(self.name, self.help, labels=self.labels)


Gauge, Counter, Histo = GaugeMetricFamily, CounterMetricFamily, HistogramMetricFamily
_EVICT: Final = "only with --kv-cache-metrics, as sampled; bounds thinned"

UP = Family(
    "apc_engine_up",
    Gauge,
    TARGET,
    "1 if the engine's /metrics gave engine series, else 0; the reason is in apc_engine_scrape_error.",
)
HEALTHY = Family(
    "apc_engine_healthy",
    Gauge,
    TARGET,
    "1 if the engine's /health answered 200, 0 if it refused, failed or timed out; absent where it has no such page.",
)
DURATION = Family(
    "apc_engine_scrape_duration_seconds",
    Gauge,
    TARGET,
    "Seconds that asking the engine and reading its answer took.",
)
ERROR = Family(
    "apc_engine_scrape_error",
    Gauge,
    ("target", "reason"),
    "1 for the reason why this scrape of the engine failed, 0 for all others.",
)
FAULT = Family(
    "apc_engine_data_fault",
    Gauge,
    ("target", "fault"),
    "1 if the engine sent values that cannot be true for this reason; they are left out.",
)
FOUND = Family(
    "apc_engine_field_found",
    Gauge,
    ("target", "field"),
    "1 if a field that this engine's version should expose has a usable value, 0 if not.",
)
START = Family(
    "apc_engine_start_time_seconds",
    Gauge,
    TARGET,
    "Unix time of the engine server's start, from process_start_time_seconds; absent with several API servers.",
)
INFO = Family(
    "apc_engine_info",
    Gauge,
    (*CACHE, "dialect", "version", "hash_algo", "cache_dtype", "memory_fraction"),
    "1; what the engine is, from /version (else the oldest version that fits its names) and cache_config_info.",
)
ENABLED = Family(
    "apc_engine_prefix_caching_enabled",
    Gauge,
    CACHE,
    "1 if prefix caching is on, from cache_config_info (a hint) or V0's hit-rate gauge (-1 = off).",
)
BLOCK_SIZE = Family(
    "apc_engine_block_size_tokens",
    Gauge,
    CACHE,
    "Tokens in a KV block, from cache_config_info; absent on hybrid models, whose label misleads.",
)
REUSE_UNIT = Family(
    "apc_engine_reuse_unit_tokens",
    Gauge,
    CACHE,
    "Tokens that reuse comes in multiples of; only where the engine's statements agree on it.",
)
BLOCKS = Family(
    "apc_engine_kv_blocks",
    Gauge,
    CACHE,
    "KV blocks of this rank, from num_gpu_blocks of cache_config_info, which is summed over ranks.",
)
QUERIED = Family(
    "apc_queried_tokens_total",
    Counter,
    (*CACHE, "tier"),
    "Tokens looked up, from prefix_cache_queries and external_prefix_cache_queries; SGLang: prompt_tokens.",
)
HIT = Family(
    "apc_hit_tokens_total",
    Counter,
    (*CACHE, "tier"),
    "Tokens found, from prefix_cache_hits and external_prefix_cache_hits; SGLang: cached_tokens.",
)
QUERIED_BLOCKS = Family(
    "apc_queried_blocks_total",
    Counter,
    CACHE,
    "Full blocks looked up, from gpu_prefix_cache_queries of vLLM V1 before 0.9, which counted blocks.",
)
HIT_BLOCKS = Family(
    "apc_hit_blocks_total",
    Counter,
    CACHE,
    "Full blocks found, from gpu_prefix_cache_hits of vLLM V1 before 0.9, which counted blocks.",
)
PROMPT = Family(
    "apc_prompt_tokens_total",
    Counter,
    (*CACHE, "source"),
    "Prompt tokens, from prompt_tokens_by_source (0.16 and later), else prompt_tokens as source unsplit.",
)
REPORTED = Family(
    "apc_reported_hit_ratio",
    Gauge,
    CACHE,
    "Lifetime share of blocks found, 0..1, as V0's gpu_prefix_cache_hit_rate reports it; cannot be windowed.",
)
USAGE = Family(
    "apc_kv_usage_ratio",
    Gauge,
    CACHE,
    "Share of KV blocks held by running requests, 0..1, from kv_cache_usage_perc; idle cached blocks count as free.",
)
PREEMPTIONS = Family(
    "apc_preemptions_total",
    Counter,
    CACHE,
    "Requests preempted for want of KV blocks, from num_preemptions. Not evictions.",
)
RUNNING = Family("apc_requests_running", Gauge, CACHE, "Requests in the running batch, from num_requests_running.")
WAITING = Family("apc_requests_waiting", Gauge, CACHE, "Requests in the queue, from num_requests_waiting.")
EVICTED = Family(
    "apc_evicted_blocks_total",
    Counter,
    (*CACHE, "method"),
    "Blocks evicted; method sampled = count of kv_block_lifetime_seconds, an upper bound, never scaled.",
)
TTFT = Family(
    "apc_ttft_seconds",
    Histo,
    CACHE,
    "Seconds to the first token, queueing included, from time_to_first_token_seconds; bounds thinned.",
)
QUEUE = Family(
    "apc_queue_seconds",
    Histo,
    CACHE,
    "Seconds in the queue of finished requests, from request_queue_time_seconds; bounds thinned.",
)
PREFILL = Family(
    "apc_prefill_seconds",
    Histo,
    CACHE,
    "Seconds from schedule to first token of finished requests, from request_prefill_time_seconds; bounds thinned.",
)
LIFETIME = Family(
    "apc_block_lifetime_seconds",
    Histo,
    CACHE,
    f"Seconds from a KV block's allocation to its reuse, from kv_block_lifetime_seconds; {_EVICT}.",
)
IDLE = Family(
    "apc_block_idle_before_eviction_seconds",
    Histo,
    CACHE,
    f"Seconds from a KV block's last use to its reuse, from kv_block_idle_before_evict_seconds; {_EVICT}.",
)
REUSE_GAP = Family(
    "apc_block_reuse_gap_seconds",
    Histo,
    CACHE,
    f"Seconds between two uses of a KV block, from kv_block_reuse_gap_seconds; {_EVICT}.",
)

FAMILIES: Final = (
    UP, HEALTHY, DURATION, ERROR, FAULT, FOUND, START, INFO, ENABLED, BLOCK_SIZE, REUSE_UNIT, BLOCKS, QUERIED, HIT,
    QUERIED_BLOCKS, HIT_BLOCKS, PROMPT, REPORTED, USAGE, PREEMPTIONS, RUNNING, WAITING, EVICTED, TTFT, QUEUE,
    PREFILL, LIFETIME, IDLE, REUSE_GAP,
)  # fmt: skip

# One row for each family that is one value of a cache.
_OF_CACHE: Final[tuple[tuple[Family, Callable[[Cache], float | Histogram | None]], ...]] = (
    (ENABLED, lambda cache: cache.facts.prefix_caching_enabled),
    (BLOCK_SIZE, lambda cache: cache.facts.block_size),
    (REUSE_UNIT, lambda cache: cache.facts.reuse_unit),
    (BLOCKS, lambda cache: cache.facts.blocks),
    (QUERIED_BLOCKS, lambda cache: cache.queried if cache.unit is Unit.BLOCKS else None),
    (HIT_BLOCKS, lambda cache: cache.hit if cache.unit is Unit.BLOCKS else None),
    (REPORTED, lambda cache: cache.reported_hit_ratio),
    (USAGE, lambda cache: cache.kv_usage),
    (PREEMPTIONS, lambda cache: cache.preemptions),
    (RUNNING, lambda cache: cache.running),
    (WAITING, lambda cache: cache.waiting),
    (TTFT, lambda cache: cache.ttft),
    (QUEUE, lambda cache: cache.queue),
    (PREFILL, lambda cache: cache.prefill),
    (LIFETIME, lambda cache: cache.block_lifetime),
    (IDLE, lambda cache: cache.block_idle),
    (REUSE_GAP, lambda cache: cache.block_reuse_gap),
)  # fmt: skip


def families(scrapes: Iterable[Scrape]) -> list[Metric]:
    """Return all families with the series of these scrapes; a family without any is left out."""
    built = {family: family.empty() for family in FAMILIES}
    for scrape in scrapes:
        for family, labels, value in _series(scrape):
            if isinstance(value, Histogram):
                buckets = [(_bound(bound), count) for bound, count in value.buckets]
                built[family].add_metric(labels, buckets, value.sum)  # type: ignore[attr-defined]
            elif value is not None:
                built[family].add_metric(labels, float(value))  # type: ignore[attr-defined]
    return [metric for metric in built.values() if metric.samples]


Series = tuple[Family, list[str], float | Histogram | None]


def _series(scrape: Scrape) -> Iterator[Series]:
    target = scrape.target
    yield UP, [target], scrape.snapshot is not None
    yield HEALTHY, [target], scrape.healthy
    yield DURATION, [target], scrape.duration
    for reason in Reason:
        yield ERROR, [target, reason], scrape.reason is reason
    snapshot = scrape.snapshot
    if snapshot is None:
        return
    for fault in Fault:
        yield FAULT, [target, fault], fault in snapshot.faults
    for name, found in snapshot.found.items():
        yield FOUND, [target, name], found
    yield START, [target], snapshot.start_time
    for cache in snapshot.caches:
        labels = [target, cache.model_name, cache.engine]
        facts = cache.facts
        about = [
            snapshot.dialect or "unknown",
            snapshot.version,
            facts.hash_algo,
            facts.cache_dtype,
            facts.memory_fraction,
        ]
        yield INFO, [*labels, *about], 1
        yield from _of_cache(cache, labels)


def _of_cache(cache: Cache, labels: list[str]) -> Iterator[Series]:
    for family, value in _OF_CACHE:
        yield family, labels, value(cache)
    if cache.unit is Unit.TOKENS:
        yield QUERIED, [*labels, "device"], cache.queried
        yield HIT, [*labels, "device"], cache.hit
    yield QUERIED, [*labels, "external"], cache.external_queried
    yield HIT, [*labels, "external"], cache.external_hit
    if cache.prompt_by_source:
        for source, tokens in cache.prompt_by_source.items():
            yield PROMPT, [*labels, source], tokens
    else:
        yield PROMPT, [*labels, "unsplit"], cache.prompt
    if cache.block_lifetime:
        yield EVICTED, [*labels, "sampled"], cache.block_lifetime.count


def _bound(bound: float) -> str:
    """Write a bucket's bound as Prometheus does."""
    return "+Inf" if bound == math.inf else repr(bound)
