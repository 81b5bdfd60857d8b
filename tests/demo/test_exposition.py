"""What is rendered is what real engines expose, and what the exporter's table says that they do."""

import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo.cache import Residency
from demo.exposition import Configuration, Stats, engine_text, process_text
from exporter.engine import FIELDS, START_TIME, Dialect, Unit, Version, exposed_name
from exporter.parse import parse, stated_unit
from tests.inputs import capture

STARTED = 1_795_952_043.56
V1_VERSIONS: list[Version] = [
    *[(0, 7, 3), (0, 8, 5), (0, 9, 2), (0, 10, 2), (0, 11, 2), (0, 12, 0)],
    *[(0, 16, 0), (0, 20, 2), (0, 24, 0), (0, 28, 0), (0, 32, 0)],
]
KINDS: list[tuple[Dialect, Version]] = [
    *[(Dialect.VLLM_V1, version) for version in V1_VERSIONS],
    *[(Dialect.VLLM_V0, (0, 6, 6)), (Dialect.VLLM_V0, (0, 8, 5)), (Dialect.SGLANG, (0, 5, 6))],
]
REAL = {
    "DERIVED-FROM-SOURCE__v0.6.6-V0": (Dialect.VLLM_V0, (0, 6, 6)),
    "DERIVED-FROM-SOURCE__v0.7.3-V1": (Dialect.VLLM_V1, (0, 7, 3)),
    "DERIVED-FROM-SOURCE__v0.8.5-V1": (Dialect.VLLM_V1, (0, 8, 5)),
    "v0.8.5-V0-show-hidden-0.7__shared": (Dialect.VLLM_V0, (0, 8, 5)),
    "v0.9.2__fresh": (Dialect.VLLM_V1, (0, 9, 2)),
    "v0.10.2__fresh": (Dialect.VLLM_V1, (0, 10, 2)),
    "v0.12.0__fresh": (Dialect.VLLM_V1, (0, 12)),
    "v0.16.0__fresh": (Dialect.VLLM_V1, (0, 16)),
    "v0.24.0__fresh": (Dialect.VLLM_V1, (0, 24)),
    "v0.28.0__fresh": (Dialect.VLLM_V1, (0, 28)),
    "v0.32.0__fresh-no-traffic__kv-metrics-on": (Dialect.VLLM_V1, (0, 32)),
}


def stats_of(configuration: Configuration) -> Stats:
    """Return what a rank has counted after 340 tokens, 320 of them twice."""
    stats = Stats(configuration)
    stats.looked_up(340, 0)
    stats.looked_up(340, 320)
    stats.first_token(680, 320, 0.03)
    stats.reallocated(Residency(2.0, 1.0, (0.5,)))
    return stats


def rendered(hidden: tuple[str, ...] = (), **settings: Any) -> str:
    configuration = Configuration(**settings)
    return engine_text(configuration, [stats_of(configuration) for _ in range(configuration.ranks)], STARTED, hidden)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the values by name and labels, `cache_config_info` by the names of its labels."""
    return {
        (
            sample.name,
            tuple((name, "" if "config" in sample.name else value) for name, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(("dialect", "version"), KINDS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_each_version_has_every_spelling_that_covers_it_and_no_other(
    dialect: Dialect, version: Version, ranks: int
) -> None:
    text = rendered(dialect=dialect, version=version, ranks=ranks, speculative=True)
    found = {sample.route.field.name for sample in parse(text)}
    covering = {f.name for f in FIELDS if any(s.covers(dialect, version) for s in f.spellings)}
    assert found == covering
    spellings = [(exposed_name(s, f.kind, dialect), s) for f in FIELDS for s in f.spellings if dialect in s.dialects]
    families = {line.split()[2] for line in text.split("\n") if line.startswith("# TYPE ")}
    assert families & {name for name, _ in spellings} == {name for name, s in spellings if s.covers(dialect, version)}


@pytest.mark.parametrize("name", REAL)
def test_a_real_engine_exposes_the_same_series_with_the_same_labels_and_bounds(name: str) -> None:
    dialect, version = REAL[name]
    real = samples(capture(name))
    ours = {key for key in samples(rendered(dialect=dialect, version=version)) if "config" not in key[0]}
    assert ours - real.keys() == set()
    info = next((key for key in samples(rendered(dialect=dialect, version=version)) if "config" in key[0]), None)
    real_info = next((key for key in real if "cache_config" in key[0]), None)
    assert (info is None) == (real_info is None)
    assert not info or not real_info or set(info[1]) <= set(real_info[1])


@pytest.mark.parametrize(
    ("version", "unit", "queried", "hit"),
    [((0, 7, 3), Unit.BLOCKS, 42, 20), ((0, 8, 5), Unit.BLOCKS, 42, 20), ((0, 9, 2), Unit.TOKENS, 680, 320)],
)
def test_old_versions_count_blocks_and_their_help_says_so(
    version: Version, unit: Unit, queried: float, hit: float
) -> None:
    text = rendered(version=version)
    lookups = {s.route.spelling.name: s.value for s in parse(text) if s.route.field.name in {"queried", "hit"}}
    assert lookups["gpu_prefix_cache_queries"] == queried
    assert lookups["gpu_prefix_cache_hits"] == hit
    assert stated_unit(text, "vllm:gpu_prefix_cache_queries") is unit


@pytest.mark.parametrize("version", [(0, 9, 2), (0, 10, 2)])
def test_two_versions_have_both_names_with_equal_values(version: Version) -> None:
    values = [sample.value for sample in parse(rendered(version=version)) if sample.route.field.name == "queried"]
    assert values == [680, 680]


@pytest.mark.parametrize(("prefix_caching", "ratio"), [(True, 20 / 42), (False, -1.0)])
def test_v0_has_a_lifetime_ratio_or_minus_one(prefix_caching: bool, ratio: float) -> None:
    text = rendered(dialect=Dialect.VLLM_V0, version=(0, 8, 5), prefix_caching=prefix_caching)
    (sample,) = [sample for sample in parse(text) if sample.route.field.name == "reported_hit_ratio"]
    assert sample.value == pytest.approx(ratio)
    assert "_created" not in text
    assert "engine=" not in text


def test_each_rank_has_its_rows_and_the_blocks_of_all() -> None:
    text = rendered(ranks=2, blocks=1024, block_size=32)
    assert {sample.labels.engine for sample in parse(text)} == {"0", "1"}
    rows = [dict(sample.labels.rest) for sample in parse(text) if sample.route.field.name == "cache_config"]
    assert [row["num_gpu_blocks"] for row in rows] == ["2048", "2048"]
    assert [row["kv_cache_size_tokens"] for row in rows] == ["32768", "32768"]
    assert rows[0]["enable_prefix_caching"] == "True"


def test_sglang_counts_cached_tokens_by_source() -> None:
    text = rendered(dialect=Dialect.SGLANG, version=(0, 5, 6), ranks=2)
    found = {(s.route.field.name, s.labels.engine): s for s in parse(text) if s.route.part == "value"}
    assert found["hit", "1"].labels.rest[0] == ("cache_source", "device")
    assert found["queried", "1"].value == found["prompt", "1"].value == 680
    assert dict(found["cache_config", "0"].labels.rest)["page_size"] == "16"


def test_prompt_tokens_are_told_by_source() -> None:
    by_source = {s.labels.rest: s.value for s in parse(rendered()) if s.route.field.name == "prompt_by_source"}
    assert by_source == {
        (("source", "local_compute"),): 360,
        (("source", "local_cache_hit"),): 320,
        (("source", "external_kv_transfer"),): 0,
    }


def test_a_histogram_counts_up_to_and_with_its_bounds() -> None:
    stats = Stats(Configuration())
    for seconds in (0.001, 0.0011, 3000.0):
        stats.first_token(1, 0, seconds)
    text = engine_text(Configuration(), [stats], STARTED)
    bounds = {
        s.labels.le: s.value
        for s in parse(text, every_bound=True)
        if s.route.field.name == "ttft" and s.route.part == "bucket"
    }
    assert (bounds[0.001], bounds[0.005], bounds[2560.0], bounds[math.inf]) == (1, 2, 2, 3)


def test_hidden_fields_vanish_and_nothing_else_does() -> None:
    fields, left = ([s.route.field.name for s in parse(rendered(hidden))] for hidden in ((), ("hit", "ttft")))
    assert left == [name for name in fields if name not in {"hit", "ttft"}]


def test_speculation_shows_in_a_family_of_its_own() -> None:
    assert "spec_decode_num_drafts" in rendered(speculative=True)
    assert "spec_decode" not in rendered()


def test_a_model_name_may_hold_anything() -> None:
    model = 'a "b"\\c\nd'
    assert {sample.labels.model for sample in parse(rendered(model=model))} == {model, ""}


def test_the_process_has_families_of_its_own() -> None:
    text = process_text(STARTED, {("POST", "/v1/completions", "2xx"): 3})
    assert {family.name for family in text_string_to_metric_families(text)} == {
        "python_info",
        START_TIME.spellings[0].name,
        "http_requests",
    }
    assert [sample.value for sample in parse(text)] == [STARTED]
