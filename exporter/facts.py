"""What an engine states about its cache's shape - and which of its statements can be believed.

The source is `cache_config_info`, whose values are labels written by Python's `str()`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from exporter.parse import Labels


@dataclass(frozen=True, slots=True)
class Facts:
    """Stated facts of one cache; None where the engine does not state them or where they cannot be right."""

    prefix_caching_enabled: bool | None = None  # the front end's copy: a hint
    block_size: int | None = None  # tokens; None on hybrid models, where the label is not what is reused
    stated_block_size: int | None = None  # tokens; the label as it stands
    reuse_unit: int | None = None  # tokens: hits come in multiples of this
    blocks: int | None = None  # of this rank
    hash_algo: str = ""
    cache_dtype: str = ""
    memory_fraction: str = ""

    def with_enabled(self, enabled: bool) -> "Facts":
        """Return the same facts with caching known to be on or off."""
        return replace(self, prefix_caching_enabled=enabled)


NO_FACTS: Final = Facts()


def facts_by_engine(rows: Iterable[Labels], engines: Iterable[str]) -> dict[str, Facts]:
    """Return each rank's facts; a row without an engine label speaks for all of them."""
    ranks = set(engines)
    by_engine: dict[str | None, set[Facts]] = {}
    for row in rows:  # one for each process or replica, which differ in labels of no concern
        by_engine.setdefault(row.engine, set()).add(_facts(dict(row.rest), max(len(ranks), 1)))
    facts = {}
    for rank in ranks:
        found = by_engine.get(rank) or by_engine.get(None, set())
        if len(found) == 1:  # of two that disagree neither is sure
            (facts[rank],) = found
    return facts


def _facts(row: Mapping[str, str], ranks: int) -> Facts:
    block_size = _int(row, "block_size") or _int(row, "page_size")
    # vLLM's label is the sum over the ranks of this server, repeated on each of them.
    summed = _int(row, "num_gpu_blocks")
    blocks = summed // ranks if summed and summed % ranks == 0 else None
    hybrid = row.get("mamba_cache_mode", "none") not in {"none", "None"} or _int(row, "mamba_block_size") is not None
    capacity = _int(row, "kv_cache_size_tokens")  # per rank and aware of cache groups
    plain = not hybrid and block_size and blocks and capacity == blocks * block_size
    return Facts(
        prefix_caching_enabled={"True": True, "False": False}.get(row.get("enable_prefix_caching", "")),
        block_size=None if hybrid else block_size,
        stated_block_size=block_size,
        reuse_unit=_int(row, "cache_hit_alignment_tokens") or (block_size if plain or "page_size" in row else None),
        blocks=blocks,
        hash_algo=row.get("prefix_caching_hash_algo", ""),
        cache_dtype=row.get("cache_dtype", ""),
        memory_fraction=row.get("gpu_memory_utilization", ""),
    )


def _int(row: Mapping[str, str], name: str) -> int | None:
    """Return a positive whole number that a float can hold; None for `None`, an absent label, anything else."""
    text = row.get(name, "")
    return int(text) or None if re.fullmatch(r"[0-9]{1,15}", text) else None
