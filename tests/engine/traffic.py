"""Known traffic for a server, and what its counters rose by."""

from collections.abc import Iterator, Sequence
from typing import Any

import requests

from exporter.collector import Collector
from exporter.config import Settings, Target
from exporter.scrape import Scrape
from exporter.snapshot import Cache, Snapshot


def complete(url: str, path: str = "/v1/completions", **body: Any) -> dict[str, Any]:
    """Ask for a completion of 4 tokens; returns the answer, with the status where it failed."""
    defaults = {"model": "qwen2.5-7b-instruct", "max_tokens": 4, "ignore_eos": True, "temperature": 0}
    answer = requests.post(url + path, json=defaults | body, timeout=60)
    return {"status": answer.status_code, **answer.json()}


def ids(start: int, length: int) -> list[int]:
    """Return token ids that no other start shares a block with."""
    return [(start * 31 + i * (1 + start % 7)) % 256 if i else start % 256 for i in range(length)]


def scrape(url: str) -> Scrape:
    """Scrape the server as the exporter does."""
    collector = Collector(Settings((Target("t", url, f"{url}/metrics"),), "127.0.0.1", 0, 10.0, 2**24))
    try:
        return collector.scrape()[0]
    finally:
        collector.close()


def snap(url: str) -> Snapshot:
    """Return a snapshot; the server must give one."""
    found = scrape(url)
    assert found.snapshot, found
    return found.snapshot


def counters(cache: Cache) -> dict[str, float]:
    """Return every counter of a cache, histograms by their counts."""
    found = {name: getattr(cache, name) for name in ("queried", "hit", "external_queried", "external_hit", "prompt")}
    found |= {f"source {name}": tokens for name, tokens in cache.prompt_by_source.items()}
    found |= {"preemptions": cache.preemptions}
    histograms = ("ttft", "queue", "prefill", "block_lifetime")
    found |= {name: histogram.count for name in histograms if (histogram := getattr(cache, name))}
    return found


def increase(before: Sequence[Cache], after: Sequence[Cache]) -> dict[str, float]:
    """Return what rose, and by how much, over all caches."""
    first = [counters(cache) for cache in before]
    last = [counters(cache) for cache in after]
    names = last[0]
    rise = {name: sum(c[name] for c in last) - sum(c.get(name, 0) for c in first) for name in names}
    return {name: value for name, value in rise.items() if value}


def served(url: str, calls: Iterator[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Send one call after the other; yields each one's usage and what the counters rose by."""
    before = snap(url)
    for call in calls:
        answer = complete(url, **call)
        after = snap(url)
        usage = answer.get("usage") or {}
        said = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
        said["cached_tokens"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        yield {"status": answer["status"], **said}, increase(before.caches, after.caches)
        before = after
