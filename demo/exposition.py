"""The state of a simulated engine -> `/metrics` as an engine of a given dialect and version writes it.

Every name comes from the exporter's table, so a version is rendered in all the spellings that cover it, those
behind a flag (`by_default=False`) included. The bounds, units and labels are those of the captured engines.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from demo.cache import Residency
from exporter.engine import FIELDS, START_TIME, Dialect, Field, Kind, Spelling, Unit, Version, exposed_name

CONTENT_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"
Labels = dict[str, str]

_TTFT: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_TTFT_TAIL: Final = (20, 40, 80, 160, 640, 2560)
_WAIT: Final = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60)
_WAIT_TAIL: Final = (120, 240, 480, 960, 1920, 7680)
_TAILS_SINCE: Final = (0, 8, 5)
_SGLANG_TTFT: Final = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_RESIDENCY: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
_RESIDENCY_TAIL: Final = (600, 1200, 1800)
_LENGTHS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

# Families that an exporter of prefix-cache figures has to pass over.
_OTHERS: Final = (
    Field("prompt_cached", Kind.COUNTER, (Spelling("prompt_tokens_cached", (Dialect.VLLM_V1,), (0, 16)),)),
    Field("generated", Kind.COUNTER, (Spelling("generation_tokens", tuple(Dialect)),)),
)

_HELP: Final = {
    "queried": "Prefix cache queries, in terms of number of queried {unit}.",
    "hit": "Prefix cache hits, in terms of number of cached {unit}.",
    "external_queried": "External prefix cache queries from KV connector cross-instance cache sharing, "
    "in terms of number of queried tokens.",
    "external_hit": "External prefix cache hits from KV connector cross-instance cache sharing, "
    "in terms of number of cached tokens.",
    "prompt": "Number of prefill tokens processed.",
    "prompt_by_source": "Number of prompt tokens by source.",
    "prompt_cached": "Number of cached prompt tokens (local + external).",
    "preemptions": "Cumulative number of preemption from the engine.",
    "kv_usage": "KV-cache usage. 1 means 100 percent usage.",
    "running": "Number of requests in model execution batches.",
    "waiting": "Number of requests waiting to be processed.",
    "reported_hit_ratio": "GPU prefix cache block hit rate.",
    "ttft": "Histogram of time to first token in seconds.",
    "queue": "Histogram of time spent in WAITING phase for request.",
    "prefill": "Histogram of time spent in PREFILL phase for request.",
    "block_lifetime": "Histogram of KV cache block lifetime from allocation to eviction.",
    "block_idle": "Histogram of idle time before KV cache block eviction.",
    "block_reuse_gap": "Histogram of time gaps between consecutive KV cache block accesses.",
    "cache_config": "Information of the LLMEngine CacheConfig",
    "generated": "Number of generation tokens processed.",
    "e2e": "Histogram of end to end request latency in seconds.",
    "prompt_length": "Number of prefill tokens processed.",
    "drafts": "Number of spec decoding drafts.",
}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What an engine was started with, as far as its metrics tell."""

    model: str = "qwen2.5-7b-instruct"
    dialect: Dialect = Dialect.VLLM_V1
    version: Version = (0, 32, 0)
    block_size: int = 16  # tokens
    blocks: int = 4096  # of each rank
    ranks: int = 1
    prefix_caching: bool = True
    speculative: bool = False


class Histogram:
    """Observations, counted by the upper bound that they do not exceed."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = (*bounds, math.inf)
        self.counts = [0] * len(self.bounds)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Stats:
    """What one rank has counted since it started: tokens and seconds, by the names of the exporter's fields."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.counts: Counter[str] = Counter()
        self.running = self.waiting = 0
        self.kv_usage = 0.0
        self.histograms = {name: Histogram(bounds) for name, bounds in _bounds(configuration).items()}

    @property
    def gauges(self) -> dict[str, float]:
        """What holds now; the hit ratio is V0's, of all lookups ever, and -1 while caching is off."""
        ratio = self.counts["hit blocks"] / max(1, self.counts["queried blocks"])
        return {
            "running": self.running,
            "waiting": self.waiting,
            "kv_usage": self.kv_usage,
            "reported_hit_ratio": ratio if self.configuration.prefix_caching else -1,
        }

    def looked_up(self, tokens: int, cached_tokens: int) -> None:
        """Count the lookup of a prompt, in tokens and, as old versions do, in full blocks."""
        block_size = self.configuration.block_size
        blocks = {"queried blocks": (tokens - 1) // block_size, "hit blocks": cached_tokens // block_size}
        self.counts.update({"queried": tokens, "hit": cached_tokens} | blocks)

    def first_token(self, prompt_tokens: int, cached_tokens: int, ttft: float) -> None:
        """Count a prompt when its first token is out."""
        self.counts.update({"prompt": prompt_tokens, "prompt_cached": cached_tokens})
        self.histograms["ttft"].observe(ttft)

    def reallocated(self, residency: Residency) -> None:
        """Observe what a block had lived through."""
        self.histograms["block_lifetime"].observe(residency.lifetime)
        self.histograms["block_idle"].observe(residency.idle)
        for gap in residency.reuse_gaps:
            self.histograms["block_reuse_gap"].observe(gap)


def process_text(started: float, requests: Mapping[tuple[str, str, str], int]) -> str:
    """Return the families of the process and its web server, which are there even with `--disable-log-stats`.

    `started` is a Unix time; `requests` counts by method, handler and status class.
    """
    start_time = START_TIME.spellings[0].name
    lines = [
        *_head("python_info", "Python platform information", "gauge"),
        _sample("python_info", {"implementation": "CPython", "major": "3", "minor": "11"}, 1),
        *_head(start_time, "Start time of the process since unix epoch in seconds.", "gauge"),
        _sample(start_time, {}, started),
        *_head("http_requests_total", "Total number of requests by method, status and handler.", "counter"),
        *(
            _sample("http_requests_total", {"method": method, "handler": handler, "status": status}, count)
            for (method, handler, status), count in requests.items()
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def engine_text(
    configuration: Configuration, ranks: Sequence[Stats], started: float, hidden: Collection[str] = ()
) -> str:
    """Return the families of the engine, without the fields named in `hidden`."""
    hidden = {*hidden, *(() if configuration.speculative else ("drafts",))}
    covering = {
        exposed_name(spelling, field.kind, configuration.dialect): field  # a name of two fields is the later one's
        for field in (*FIELDS, *_OTHERS)
        for spelling in field.spellings
        if spelling.covers(configuration.dialect, configuration.version)
    }
    lines = (
        line
        for name, field in covering.items()
        if field.name not in hidden
        for line in _family(name, field, ranks, started)
    )
    return "".join(f"{line}\n" for line in lines)


def _family(name: str, field: Field, ranks: Sequence[Stats], started: float) -> Iterator[str]:
    configuration = ranks[0].configuration
    kind = "gauge" if field.kind is Kind.INFO else field.kind.value
    text = _HELP[field.name].format(unit=_unit(field, configuration))
    yield from _head(name, text, kind)
    for index, stats in enumerate(ranks):
        labels = _rank_labels(field, configuration, index)
        if field.kind is Kind.HISTOGRAM:
            yield from _histogram(name, labels, stats.histograms[field.name])
        else:
            for own, value in _values(field, stats):
                yield _sample(name, labels | own, value)
    if configuration.dialect is not Dialect.VLLM_V0 and field.kind in (Kind.COUNTER, Kind.HISTOGRAM):
        created = f"{name.removesuffix('_total')}_created"
        yield from _head(created, text, "gauge")
        for index, stats in enumerate(ranks):
            own_labels = [{}] if field.kind is Kind.HISTOGRAM else [own for own, _ in _values(field, stats)]
            for own in own_labels:
                yield _sample(created, _rank_labels(field, configuration, index) | own, started)


def _values(field: Field, stats: Stats) -> list[tuple[Labels, float]]:
    configuration, counts = stats.configuration, stats.counts
    if field.kind is Kind.INFO:
        return [(_cache_config(configuration), 1)]
    if field.kind is Kind.GAUGE:
        return [({}, stats.gauges[field.name])]
    if field.name == "prompt_by_source":
        cached = counts["prompt_cached"]
        sources = {"local_compute": counts["prompt"] - cached, "local_cache_hit": cached, "external_kv_transfer": 0}
        return [({field.split: source}, tokens) for source, tokens in sources.items()]
    own = {field.split: "device"} if field.split and configuration.dialect is Dialect.SGLANG else {}
    unit = " blocks" if _unit(field, configuration) is Unit.BLOCKS else ""
    return [(own, counts[field.name + unit])]


def _unit(field: Field, configuration: Configuration) -> Unit:
    """Return what the field counts in this version: tokens under all its names, once one of them counts tokens."""
    units = {s.unit for s in field.spellings if s.covers(configuration.dialect, configuration.version)}
    return Unit.BLOCKS if units == {Unit.BLOCKS} else Unit.TOKENS


def _rank_labels(field: Field, configuration: Configuration, index: int) -> Labels:
    if configuration.dialect is Dialect.SGLANG:
        rank = {"dp_rank": str(index)} if configuration.ranks > 1 else {}
        return {"engine_type": "unified", "model_name": configuration.model, "pp_rank": "0", "tp_rank": "0"} | rank
    info = field.kind is Kind.INFO
    labelled = configuration.dialect is Dialect.VLLM_V1 and configuration.version >= ((0, 9, 2) if info else (0, 8, 5))
    return ({"engine": str(index)} if labelled else {}) | ({} if info else {"model_name": configuration.model})


def _cache_config(configuration: Configuration) -> Labels:
    block_size, blocks, version = configuration.block_size, configuration.blocks, configuration.version
    if configuration.dialect is Dialect.SGLANG:
        return {"page_size": str(block_size), "num_pages": str(blocks)}
    labels = {
        "block_size": str(block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(configuration.prefix_caching),
        "gpu_memory_utilization": "0.92" if version >= (0, 20, 2) else "0.9",
        "num_gpu_blocks": str(blocks * configuration.ranks),  # the sum, on the row of each rank
    }
    later = (
        ((0, 8, 5), "prefix_caching_hash_algo", "sha256" if version >= (0, 10, 2) else "builtin"),
        ((0, 16), "mamba_cache_mode", "none"),
        ((0, 24), "kv_cache_size_tokens", str(blocks * block_size)),
    )
    return labels | {label: value for since, label, value in later if version >= since}


def _bounds(configuration: Configuration) -> dict[str, tuple[float, ...]]:
    tails = configuration.version >= _TAILS_SINCE
    ttft = _TTFT + (_TTFT_TAIL if tails else ())
    wait = _WAIT + (_WAIT_TAIL if tails else ())
    if configuration.dialect is Dialect.SGLANG:
        ttft = _SGLANG_TTFT
    residency = dict.fromkeys(("block_lifetime", "block_idle", "block_reuse_gap"), _RESIDENCY + _RESIDENCY_TAIL)
    times = {"ttft": ttft, "queue": wait, "prefill": wait, "e2e": wait}
    return times | {"prompt_length": _LENGTHS} | residency


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        total += count
        yield _sample(f"{name}_bucket", labels | {"le": "+Inf" if bound == math.inf else repr(float(bound))}, total)
    yield _sample(f"{name}_count", labels, total)
    yield _sample(f"{name}_sum", labels, histogram.sum)


def _head(name: str, text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _sample(name: str, labels: Labels, value: float) -> str:
    written = ",".join(f'{label}="{_escaped(text)}"' for label, text in sorted(labels.items()))
    return f"{name}{{{written}}} {float(value)!r}" if written else f"{name} {float(value)!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
