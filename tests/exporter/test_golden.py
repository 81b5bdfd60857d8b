"""Every captured answer gives a committed exposition that promtool accepts and that shows the traffic sent."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.__main__ import main
from exporter.read import read
from tests.inputs import CAPTURES, NEWEST, TESTS, TRAFFIC

GOLDEN = TESTS / "golden"
# what an engine's series is called in ours, and the labels that part ours
OURS = {
    "prefix_cache_queries_total": ("apc_queried_tokens_total", {"tier": "device"}),
    "prefix_cache_hits_total": ("apc_hit_tokens_total", {"tier": "device"}),
    "external_prefix_cache_queries_total": ("apc_queried_tokens_total", {"tier": "external"}),
    "external_prefix_cache_hits_total": ("apc_hit_tokens_total", {"tier": "external"}),
    "prompt_tokens_total": ("apc_prompt_tokens_total", {}),
    "num_preemptions_total": ("apc_preemptions_total", {}),
    "kv_block_lifetime_seconds_count": ("apc_evicted_blocks_total", {"method": "sampled"}),
    "gpu_prefix_cache_hit_rate": ("apc_reported_hit_ratio", {}),
}
CACHED = ("local_cache_hit", "external_kv_transfer")


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_exposition(
    path: Path,
    golden: Callable[[Path, str], None],
    promtool: Callable[..., subprocess.CompletedProcess[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--once", "--from-file", str(path)]) == 0
    text = capsys.readouterr().out
    golden(GOLDEN / path.name, text)
    checked = promtool("check", "metrics", stdin=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.parametrize("name", [name for name, facts in TRAFFIC.items() if facts.get("counters_in_file")])
def test_counters_equal_the_traffic_sent(name: str) -> None:
    text = (GOLDEN / name).read_text(encoding="utf-8")
    compared = 0
    for spelled, value in TRAFFIC[name]["counters_in_file"].items():
        series, _, engine = spelled.partition(":")[2].partition("@engine")
        rank = {"engine": engine or "0"}
        if series == "prompt_tokens_cached_total":
            assert sum(total(text, "apc_prompt_tokens_total", source=source, **rank) for source in CACHED) == value
        elif series in OURS and value >= 0:
            ours, labels = OURS[series]
            assert total(text, ours, **labels, **rank) == value, (spelled, ours)
        else:
            continue
        compared += 1
    assert compared


def total(text: str, name: str, **labels: str) -> float:
    """Sum an exported series over whatever labels are not given."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_the_command_prints_it_also_from_standard_input() -> None:
    command = [sys.executable, "-m", "exporter", "--once", "--from-file", "-"]
    ran = subprocess.run(command, stdin=NEWEST.open(), capture_output=True, text=True, check=False, cwd=TESTS.parent)
    assert (ran.returncode, ran.stdout) == (0, (GOLDEN / NEWEST.name).read_text(encoding="utf-8"))


def test_data_parallel_ranks_stay_apart_and_their_blocks_are_their_own() -> None:
    snapshot = read((TESTS / "captures/v0.32.0__data-parallel-2__after-shared-prefix-traffic.prom").read_bytes())
    assert [(cache.engine, cache.queried, cache.hit, cache.facts.blocks) for cache in snapshot.caches] == [
        ("0", 1700, 1280, 32_768),
        ("1", 1700, 1280, 32_768),
    ]
