"""What the figures are when an answer is odd, broken, or made by several processes."""

import math

import pytest

from exporter.engine import Dialect, Unit
from exporter.scrape import Reason, ScrapeError
from exporter.snapshot import Cache, Fault
from tests.exporter.bodies import PAIR, by_source, ranks, snap
from tests.inputs import capture


def only(text: str) -> Cache:
    (cache,) = snap(text).caches
    return cache


@pytest.mark.parametrize(
    "line",
    [
        'vllm:prefix_cache_hits_total{engine="0} 1',
        'vllm:prefix_cache_hits_total{engine="0"',
        "vllm:prefix_cache_hits_total{engine=0} 1",
        'vllm:prefix_cache_hits_total{engine="0" model_name="m"} 1',
        'vllm:prefix_cache_hits_total{engine="0",engine="1"} 1',
        'vllm:prefix_cache_hits_total{"engine="0"} 1',
        '{"vllm:prefix_cache_hits_total",engine="0} 1',
        "vllm:prefix_cache_hits_total{} ",
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits_total x",
        "vllm:prefix_cache_hits_total 1_000",
        "vllm:prefix_cache_hits_total 0x10",
        "vllm:prefix_cache_hits_total 1 2 3",
        "vllm:prefix_cache_hits_total 1,5",
    ],
)
def test_a_malformed_line_fails_the_whole_answer_and_is_named(line: str) -> None:
    with pytest.raises(ScrapeError, match="line 3: ") as raised:
        snap(f"{PAIR}{line}\n")
    assert raised.value.reason is Reason.PARSE_ERROR


@pytest.mark.parametrize(
    "line",
    [
        'vllm:prefix_cache_hits_total{engine="0",model_name="m",} 40',
        'vllm:prefix_cache_hits_total { engine = "0" , model_name = "m" } 40 1700000000000',
        'vllm:prefix_cache_hits_total{engine="0",model_name="m"}\t4e1',
        '  vllm:prefix_cache_hits_total{engine="0",model_name="m"} +40.0\r',
        'vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40 # {trace_id="x"} 1',
        'vllm:prefix_cache_hits{engine="0",model_name="m"} 40',
        'kserve_vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40',
        'ray_vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40',
        'vllm.prefix_cache_hits_total{engine="0",model_name="m"} 40',
        'vllm.vllm.prefix_cache_hits_total{engine="0",model_name="m"} 40',
        'vllm_vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40',
        'vllm_vllm_prefix_cache_hits_total{engine="0",model_name="m"} 40',
        '{"vllm:prefix_cache_hits_total",engine="0",model_name="m"} 40',
        '{ "vllm.prefix_cache_hits_total" , "engine"="0","model_name"="m"} 40 1700000000000',
    ],
)
def test_every_legal_way_to_write_a_line(line: str) -> None:
    cache = only(f'vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} 100\n{line}\n')
    assert (cache.model_name, cache.engine, cache.hit) == ("m", "0", 40)


def test_label_values_may_hold_anything() -> None:
    cache = only('vllm:num_requests_running{model_name="a \\"b\\" {c} \\\\ \\n, d=\\"e\\""} 1\n')
    assert cache.model_name == 'a "b" {c} \\ \n, d="e"'


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("vllm:prefix_cache_hits_total NaN", Fault.NOT_FINITE),
        ("vllm:prefix_cache_hits_total +Inf", Fault.NOT_FINITE),
        ("vllm:prefix_cache_hits_total -1", Fault.NEGATIVE),
        ("vllm:prefix_cache_hits_total 40\nvllm:prefix_cache_hits_total 41", Fault.CONFLICT),
        ("vllm:prefix_cache_hits_total 101", Fault.HITS_EXCEED_QUERIES),
    ],
)
def test_a_value_that_cannot_be_is_left_out_and_named(line: str, fault: Fault) -> None:
    snapshot = snap(f"vllm:prefix_cache_queries_total 100\n{line}\n")
    assert snapshot.faults == {fault}
    assert all(cache.hit is None for cache in snapshot.caches)
    assert snapshot.found["hit"] is False


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("vllm:kv_cache_usage_perc 40", Fault.OUT_OF_RANGE),
        ("vllm:gpu_prefix_cache_hit_rate -0.5", Fault.NEGATIVE),
        ('vllm:gpu_prefix_cache_hit_rate{pid="1"} 0.5\nvllm:gpu_prefix_cache_hit_rate{pid="2"} 0.6', Fault.CONFLICT),
    ],
)
def test_a_fraction_outside_its_range_is_left_out(line: str, fault: Fault) -> None:
    snapshot = snap(f"vllm:num_requests_running 1\n{line}\n")
    assert snapshot.faults == {fault}
    assert [(cache.kv_usage, cache.reported_hit_ratio) for cache in snapshot.caches] == [(None, None)]


def test_gauges_of_several_processes_are_merged_by_the_right_operation() -> None:
    cache = only(
        'vllm:num_requests_running{model_name="m",pid="1"} 2\nvllm:num_requests_running{model_name="m",pid="2"} 3\n'
        'vllm:kv_cache_usage_perc{model_name="m",pid="1"} 0.2\nvllm:kv_cache_usage_perc{model_name="m",pid="2"} 0.3\n'
        'vllm:gpu_prefix_cache_hit_rate{model_name="m",pid="1"} 0.5\n'
        'vllm:gpu_prefix_cache_hit_rate{model_name="m",pid="2"} 0.5\n'
    )
    assert (cache.running, cache.kv_usage, cache.reported_hit_ratio) == (5, 0.3, 0.5)


def test_one_bad_process_spoils_the_sum_and_no_other_engine() -> None:
    snapshot = snap(
        'vllm:num_preemptions_total{engine="0",pid="1"} 2\nvllm:num_preemptions_total{engine="0",pid="2"} NaN\n'
        'vllm:num_preemptions_total{engine="1",pid="1"} 7\n'
        'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 1\n'
    )
    assert [(cache.engine, cache.preemptions) for cache in snapshot.caches] == [("0", None), ("1", 7)]


def test_models_and_engines_stay_apart() -> None:
    snapshot = snap(
        "".join(f'vllm:num_preemptions_total{{model_name="{m}",engine="{e}"}} {m}{e}\n' for m in (1, 2) for e in (0, 1))
    )
    assert {(c.model_name, c.engine): c.preemptions for c in snapshot.caches} == {
        ("1", "0"): 10,
        ("1", "1"): 11,
        ("2", "0"): 20,
        ("2", "1"): 21,
    }


def histogram(*buckets: tuple[str, int], count: int | None = None, total: str | None = "1.5") -> str:
    name = "vllm:time_to_first_token_seconds"
    lines = [f'{name}_bucket{{le="{bound}"}} {value}' for bound, value in buckets]
    lines += [] if count is None else [f"{name}_count {count}"]
    lines += [] if total is None else [f"{name}_sum {total}"]
    return "\n".join(lines) + "\n"


def test_a_histogram_keeps_exact_counts_at_fewer_bounds() -> None:
    found = only(histogram(("0.001", 1), ("0.003", 2), ("1.0", 3), ("+Inf", 4), count=4)).ttft
    assert found
    assert (found.buckets, found.sum, found.count) == (((0.001, 1), (1.0, 3), (math.inf, 4)), 1.5, 4)


def test_bounds_of_the_operators_own_are_all_kept() -> None:
    found = only(histogram(("0.003", 2), ("0.7", 3), ("+Inf", 4))).ttft
    assert found
    assert [bound for bound, _ in found.buckets] == [0.003, 0.7, math.inf]


@pytest.mark.parametrize(
    "text",
    [
        histogram(("0.1", 3), ("+Inf", 2)),
        histogram(("0.1", 3)),
        histogram(("0.1", 3), ("+Inf", 4), count=5),
        histogram(("0.1", 3), ("+Inf", 4), total=None),
        histogram(("x", 3), ("+Inf", 4)),
    ],
)
def test_a_histogram_that_cannot_be_is_left_out(text: str) -> None:
    snapshot = snap(text + "vllm:num_requests_running 1\n")
    assert snapshot.faults == {Fault.BAD_HISTOGRAM}
    assert [cache.ttft for cache in snapshot.caches] == [None]


@pytest.mark.parametrize("lead", ["vllm:", "vllm_", "ray_vllm_"])
def test_a_name_that_counted_blocks_then_tokens_is_told_by_its_help(lead: str) -> None:
    name = f"{lead}gpu_prefix_cache_queries_total"
    pair = f"{name} 4\n{lead}gpu_prefix_cache_hits_total 1\n"
    help_ = f"# HELP {name} GPU prefix cache queries, in terms of number of queried {{}}.\n"
    assert only(pair).unit is Unit.BLOCKS
    assert only(help_.format("blocks") + pair).unit is Unit.BLOCKS
    assert only(help_.format("tokens") + pair).unit is Unit.TOKENS
    assert only(help_.format("tokens").replace(name, f'"{name}"') + pair).unit is Unit.TOKENS


@pytest.mark.parametrize(
    ("version", "unit"), [("0.8.5", Unit.BLOCKS), ("0.9.2", Unit.TOKENS), ("0.10.1", Unit.TOKENS), ("", Unit.BLOCKS)]
)
def test_without_its_help_the_version_tells_the_unit(version: str, unit: Unit) -> None:
    (cache,) = snap(PAIR.replace("vllm:", "vllm:gpu_"), version).caches
    assert cache.unit is unit


def test_a_series_under_two_names_is_counted_once() -> None:
    """As where Ray hands on what the engine exposes too, with a label of its own."""
    handed_on = PAIR.replace("vllm:", "ray_vllm_").replace("_total ", '_total{WorkerId="a"} ')
    assert [(cache.queried, cache.hit) for cache in snap(handed_on + PAIR).caches] == [(100, 40)]


@pytest.mark.parametrize("version", ["0.1.dev1+g0123abc", "0.32.0", "", "main"])
def test_a_build_from_source_has_what_its_names_tell(version: str) -> None:
    snapshot = snap(capture("v0.32.0__unique-then-shared").replace("cache_hits_total", "hits_total"), version)
    assert [name for name, found in snapshot.found.items() if not found] == ["hit", "external_hit"]


def test_a_renamed_field_is_missed() -> None:
    text = capture("v0.32.0__unique-then-shared")
    assert all(snap(text).found.values())
    missing = snap(text.replace("vllm:prefix_cache_hits_total", "vllm:prefix_hits_total"))
    assert [name for name, found in missing.found.items() if not found] == ["hit"]


def test_a_field_declared_without_a_sample_is_neither_found_nor_missed() -> None:
    snapshot = snap(capture("v0.32.0__api-server-count-2__fresh"))
    assert not {"running", "waiting", "kv_usage"} & snapshot.found.keys()
    assert set(snapshot.found.values()) == {True}


@pytest.mark.parametrize(
    ("name", "dialect", "version"),
    [
        ("DERIVED-FROM-SOURCE__v0.6.6-V0", Dialect.VLLM_V0, ""),
        ("v0.8.5-V0__shared", Dialect.VLLM_V0, ""),
        ("DERIVED-FROM-SOURCE__v0.7.3-V1", Dialect.VLLM_V1, ">=0.7.3"),
        ("v0.10.2__fresh", Dialect.VLLM_V1, ">=0.9.2"),
        ("v0.32.0__lora", Dialect.VLLM_V1, ">=0.16"),
    ],
)
def test_the_generation_is_told_from_the_names(name: str, dialect: Dialect, version: str) -> None:
    snapshot = snap(capture(name))
    assert (snapshot.dialect, snapshot.version) == (dialect, version)


CONFIG = 'vllm:cache_config_info{{engine="{}",block_size="16",num_gpu_blocks="{}"{}}} 1\n'
RANKS = 'vllm:num_requests_running{engine="0"} 0\nvllm:num_requests_running{engine="1"} 0\n'


def test_blocks_are_those_of_one_rank() -> None:
    text = RANKS + CONFIG.format(0, 200, "") + CONFIG.format(1, 200, "")
    assert [cache.facts.blocks for cache in snap(text).caches] == [100, 100]
    odd = RANKS + CONFIG.format(0, 201, "") + CONFIG.format(1, 201, "")
    assert [cache.facts.blocks for cache in snap(odd).caches] == [None, None]


def test_replicas_that_state_the_same_are_one_and_those_that_disagree_are_none() -> None:
    one, other = (CONFIG.format(0, 100, f',WorkerId="{i}",ReplicaId="{i}",pid="{i}"') for i in (1, 2))
    assert only(PAIR + one + other).facts.block_size == 16
    assert only(PAIR + one + other.replace('"16"', '"32"')).facts.block_size is None


def test_the_block_size_of_a_hybrid_model_is_no_reuse_unit() -> None:
    facts = only(CONFIG.format(0, 100, ',mamba_cache_mode="align"') + PAIR).facts
    assert (facts.block_size, facts.reuse_unit, facts.stated_block_size) == (None, None, 16)


@pytest.mark.parametrize(("capacity", "unit"), [("1600", 16), ("900", None), ("None", None)])
def test_the_reuse_unit_is_stated_only_where_the_capacity_confirms_it(capacity: str, unit: int | None) -> None:
    facts = only(CONFIG.format(0, 100, f',kv_cache_size_tokens="{capacity}"') + PAIR).facts
    assert (facts.block_size, facts.reuse_unit) == (16, unit)


@pytest.mark.parametrize("size", ["None", "", "-16", "0", "1e3", "9" * 400, "\u0661"])
def test_a_block_size_that_is_no_number_is_none(size: str) -> None:
    assert only(f'vllm:cache_config_info{{block_size="{size}"}} 1\n{PAIR}').facts.block_size is None


SGLANG = """\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 1000.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{model_name="m",cache_source="device"} 300.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 50.0
sglang:cached_tokens_total{model_name="m",cache_source="storage"} 10.0
sglang:cache_hit_rate{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 0.9
sglang:token_usage{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 0.28
sglang:num_running_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 2
sglang:num_queue_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 1
"""


def test_sglang_is_read_from_the_same_table() -> None:
    snapshot = snap(SGLANG)
    (cache,) = snapshot.caches
    assert snapshot.dialect is Dialect.SGLANG
    assert (cache.queried, cache.hit, cache.external_hit, cache.prompt) == (1000, 300, 60, 1000)
    assert (cache.kv_usage, cache.running, cache.waiting, cache.reported_hit_ratio) == (0.28, 2, 1, None)


def test_sglang_without_a_hit_yet_has_found_nothing() -> None:
    """Its counter is there from the first hit on."""
    snapshot = snap("".join(line for line in SGLANG.splitlines(keepends=True) if "cached_tokens" not in line))
    assert [(cache.queried, cache.hit, cache.external_hit) for cache in snapshot.caches] == [(1000, 0, 0)]
    assert snapshot.found["hit"] is True


def test_sglang_hits_that_are_not_parted_are_the_devices() -> None:
    cache = only(SGLANG + 'sglang:cached_tokens_total{model_name="m",cache_source="total"} 100.0\n')
    assert (cache.hit, cache.external_hit) == (400, 60)


def test_requests_that_each_tensor_parallel_rank_tells_of_are_counted_once() -> None:
    cache = only(
        SGLANG + "".join(f"{line}\n" for line in SGLANG.replace('tp_rank="0"', 'tp_rank="1"').splitlines()[-2:])
    )
    assert (cache.running, cache.waiting) == (2, 1)


@pytest.mark.parametrize(
    ("lines", "values", "missed", "faults"),
    [
        (["1000 NaN 9", "500 100 9"], [(None, None), (500, 100)], ["hit"], {Fault.NOT_FINITE}),
        (["NaN 900 9", "500 100 9"], [(None, None), (500, 100)], ["queried"], {Fault.NOT_FINITE}),
        (["1000 - 9", "500 100 9"], [(None, None), (500, 100)], ["hit"], set()),
        (["- 900 9", "500 100 9"], [(None, None), (500, 100)], ["queried"], set()),
        (["1000 - 9", "500 - 9"], [(None, None), (None, None)], ["hit"], set()),
    ],
)
def test_half_a_pair_is_left_out_and_what_it_lacks_is_missed(
    lines: list[str], values: list[tuple[float | None, float | None]], missed: list[str], faults: set[Fault]
) -> None:
    snapshot = snap(ranks(*lines))
    assert [(cache.queried, cache.hit) for cache in snapshot.caches] == values
    assert [name for name in ("queried", "hit") if not snapshot.found[name]] == missed
    assert snapshot.faults == faults


def test_prompt_tokens_by_source_need_lookups_and_no_hits() -> None:
    """Rules divide them by themselves, but only while something is looked up."""
    without_hits = only(ranks("1000 - 9") + by_source(0, 4, 5))
    assert (without_hits.queried, dict(without_hits.prompt_by_source)) == (
        1000,
        {"local_compute": 4, "local_cache_hit": 5},
    )
    without_lookups = only(ranks("- 900 9") + by_source(0, 4, 5))
    assert (without_lookups.hit, dict(without_lookups.prompt_by_source), without_lookups.prompt) == (None, {}, 9)
