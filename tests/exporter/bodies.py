"""Answers of an engine, written short."""

from exporter.read import read
from exporter.snapshot import Snapshot

PAIR = "vllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 40\n"


def snap(text: str, version: str = "") -> Snapshot:
    """Read an answer."""
    return read(text.encode(), version=version)


def ranks(*lines: str) -> str:
    """Write each line's counters as those of a rank: `queries hits prompt`, "-" where there is none."""
    names = ("prefix_cache_queries", "prefix_cache_hits", "prompt_tokens")
    return "".join(
        f'vllm:{name}_total{{engine="{rank}",model_name="m"}} {value}\n'
        for rank, line in enumerate(lines)
        for name, value in zip(names, line.split(), strict=True)
        if value != "-"
    )


def by_source(rank: int, computed: int, cached: int) -> str:
    """Write the prompt tokens of a rank by source."""
    name = "vllm:prompt_tokens_by_source_total"
    return "".join(
        f'{name}{{engine="{rank}",model_name="m",source="{source}"}} {value}\n'
        for source, value in (("local_compute", computed), ("local_cache_hit", cached))
    )
