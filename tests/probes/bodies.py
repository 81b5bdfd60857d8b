"""Small /metrics bodies, as snapshots."""

from exporter.read import read
from exporter.snapshot import Snapshot

NAMES = {
    "queries": "prefix_cache_queries_total",
    "hits": "prefix_cache_hits_total",
    "prompt": "prompt_tokens_total",
    "preemptions": "num_preemptions_total",
    "external_queries": "external_prefix_cache_queries_total",
    "external_hits": "external_prefix_cache_hits_total",
    "lengths_sum": "request_prompt_tokens_sum",
    "lengths": "request_prompt_tokens_count",
    "drafts": "spec_decode_num_drafts_total",
    "requests": "time_to_first_token_seconds_count",
}
CONFIG = (
    'vllm:cache_config_info{{block_size="{block}",enable_prefix_caching="{enabled}",mamba_cache_mode="{mamba}"}} 1\n'
)


def body(
    block: int | None = 16,
    *,
    enabled: bool | None = True,
    hybrid: bool = False,
    model: str = "demo-7b",
    **counters: float | list[float],
) -> str:
    """Return an exposition; a list has a value for each rank. `block` None leaves the configuration out."""
    text = CONFIG.format(block=block, enabled=enabled, mamba="align" if hybrid else "none") if block else ""
    for name, values in counters.items():
        for rank, value in enumerate(values if isinstance(values, list) else [values]):
            labels = f'{{engine="{rank}",model_name="{model}"}}'
            text += f"vllm:{NAMES[name]}{labels} {value}\n"
            if name == "requests":
                text += f"vllm:time_to_first_token_seconds_sum{labels} {value / 10}\n"
    return text


def snap(text: str) -> Snapshot:
    """Read a body."""
    return read(text.encode())


def pair(block: int | None = 16, **rises: float | list[float]) -> tuple[Snapshot, Snapshot]:
    """Return a fresh engine, and the same after counters rose by so much."""
    settings = {name: rises.pop(name) for name in ("enabled", "hybrid", "model") if name in rises}
    zero = {name: [0.0] * len(value) if isinstance(value, list) else 0.0 for name, value in rises.items()}
    return snap(body(block, **settings, **zero)), snap(body(block, **settings, **rises))  # type: ignore[arg-type]
