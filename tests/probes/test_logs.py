"""Two samples are a real vLLM 0.32's; other lines are as older versions print them, with figures made up here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.logs import COLOUR, LoggedRate, Span, difference, read, sparkline, timeline

SAMPLES = Path(__file__).with_name("logs")
COLOURED = (SAMPLES / "v0.32.0-coloured.log").read_bytes().decode()
DISABLED = (SAMPLES / "v0.32.0-disabled.log").read_bytes().decode()
V1 = "Engine 000: Avg prompt throughput: 36.1 tokens/s, GPU KV cache usage: 0.0%, "
NAMESPACE = "block_size=None, enable_prefix_caching=True, use_v2_block_manager=True, swap_space=2.0"
V0 = f"""\
INFO 02-19 11:40:00 api_server.py:838] vLLM API server version 0.7.3
INFO 02-19 11:40:00 api_server.py:839] args: Namespace(host='::', model='/models/a', {NAMESPACE}, api_key='sk-1')
INFO 02-19 11:40:09 llm_engine.py:234] Initializing a V0 LLM engine (v0.7.3) with config: model='/models/a', \
decoding_config=DecodingConfig(guided_decoding_backend='xgrammar'), enable_prefix_caching=True, use_cached_outputs=True,
INFO 02-19 11:49:01 metrics.py:455] Avg prompt throughput: 4.6 tokens/s, GPU KV cache usage: 4.8%.
INFO 02-19 11:49:01 metrics.py:471] Prefix cache hit rate: GPU: 85.71%, CPU: 0.00%
INFO 02-19 11:49:06 metrics.py:471] Prefix cache hit rate: GPU: 81.82%, CPU: -100.00%
"""


def info(message: str, level: str = "INFO") -> str:
    return f"(EngineCore_DP0 pid=7) {level} 11-29 14:38:02 [core.py:133] {message}"


def rates(*figures: float, span: Span = Span.LAST_REQUESTS, engine: str = "0", start: int = 0) -> list[LoggedRate]:
    return [LoggedRate(f"11-29 14:00:{at:02}", engine, span, figure, start=start) for at, figure in enumerate(figures)]


def test_a_real_log_is_read() -> None:
    facts = read(COLOURED)
    assert (facts.prefix_caching_enabled, facts.block_size, facts.block_manager_v2) == (True, 32, None)
    assert facts.version == "0.32.0"
    assert facts.flags["max_model_len"] == "8192"
    assert facts.warnings == ("Successfully reset prefix cache",)
    assert [rate.device for rate in facts.rates] == [0.924, 0.942, 0.694, 0.516, 0.895, 0.936, 0.942, 0.942]
    assert facts.rates[0] == LoggedRate("11-29 14:38:02", "0", Span.LAST_REQUESTS, 0.924)
    (row,) = timeline(facts.rates)
    assert (row.since, row.until, row.count) == ("11-29 14:38:02", "11-29 14:39:12", 8)
    assert (row.first, row.lowest, row.last, row.spark) == (0.924, 0.516, 0.942, "██▆▅████")


def test_a_real_log_with_caching_off() -> None:
    facts = read(DISABLED)
    assert facts.prefix_caching_enabled is False
    assert (facts.block_size, facts.version, facts.rates) == (32, "0.32.0", ())


@pytest.mark.parametrize("sample", [COLOURED, DISABLED, V0])
def test_colour_line_ends_and_streaming_change_nothing(sample: str) -> None:
    facts = read(sample)
    plain = COLOUR.sub("", sample)
    assert read(plain) == facts
    assert read(plain.replace("\r", "").replace("\n", "\r\n")) == facts
    assert read(iter(sample.splitlines(keepends=True))) == facts
    assert read("".join(f"2026-09-14T23:58:00.1Z vllm-0 | {line}\n" for line in sample.split("\n"))) == facts


def test_a_v0_log_is_read() -> None:
    facts = read(V0)
    assert (facts.prefix_caching_enabled, facts.block_size, facts.block_manager_v2) == (True, None, True)
    assert facts.version == "0.7.3"
    assert facts.flags == {"enable_prefix_caching": "True", "use_v2_block_manager": "True"}
    assert facts.rates == (
        LoggedRate("02-19 11:49:01", "", Span.LIFETIME, 0.8571, cpu=0.0),
        LoggedRate("02-19 11:49:06", "", Span.LIFETIME, 0.8182),
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (V1 + "Prefix cache hit rate: 42.0%", {"device": 0.42}),
        (V1 + "Prefix cache hit rate: 0.0%, External prefix cache hit rate: 22.3%", {"device": 0.0, "external": 0.223}),
        (
            V1 + "Prefix cache hit rate: 9.5%, Corrupted: 0 reqs, MM cache hit rate: 100.0%",
            {"device": 0.095, "multimodal": 1.0},
        ),
        (V1.replace("000", "013") + "Prefix cache hit rate: 1.0%", {"device": 0.01, "engine": "13"}),
        (V1.replace("Engine 000", "4 Engines Aggregated") + "Prefix cache hit rate: 1.0%", {"engine": "all"}),
        (V1.replace("Engine 000: ", "") + "Prefix cache hit rate: 1.0%", {"engine": ""}),
        (V1 + "Prefix cache hit rate: nan%, External prefix cache hit rate: 5.0%", {"device": None, "external": 0.05}),
    ],
)
def test_a_v1_line_is_read(message: str, expected: dict[str, object]) -> None:
    (rate,) = read(info(message)).rates
    assert {name: getattr(rate, name) for name in expected} == expected


@pytest.mark.parametrize(
    "message",
    [
        V1 + "Prefix cache hit rate: nan%",
        V1 + "Prefix cache hit rate: -1.0%",
        V1 + "Prefix cache hit rate: 104.0%",
        V1 + "Prefix cache hit rate: 42.",  # cut off
        V1[:-2],
        "Prefix cache hit rate: GPU: -100.00%, CPU: -100.00%",
        "Prefix cache hit rate: GPU: 85.71",
        "Received request cmpl-1: prompt: 'Avg prompt throughput: 1, Prefix cache hit rate: 42.0%'",
    ],
)
def test_what_is_no_rate_is_left_out(message: str) -> None:
    assert read(info(message)).rates == ()


@pytest.mark.parametrize(
    ("message", "enabled", "warned"),
    [
        ("MLA is enabled; forcing chunked prefill and prefix caching to be disabled.", False, True),
        ("Hybrid or mamba-based model detected without support for prefix caching: disabling.", False, True),
        ("Hybrid or mamba-based model detected: disabling prefix caching since it is not yet supported.", False, True),
        (
            "--enable-prefix-caching is currently not supported for multimodal models and has been disabled.",
            False,
            True,
        ),
        ("Encoder-decoder models do not support chunked prefill nor prefix caching; disabling both.", False, True),
        ("Prefix caching is not supported for RISC-V CPUs; disabling it for V1 backend.", False, True),
        ('Only "last" pooling supports chunked prefill and prefix caching; disabling both.', False, True),
        ("Prefix caching is not supported on CPU, disable it.", False, True),
        ("(Disabling) prefix caching by default", False, True),
        ("Disabling prefix caching: model has non-causal attention layers.", False, True),
        ("Mamba cache mode is set to 'none' when prefix caching is disabled", False, True),
        ("KV cache events are on, but prefix caching is not enabled.", False, True),
        ("Automatic prefix caching is disabled.", False, True),
        ("Automatic prefix caching is enabled.", True, False),
        ("Prefix caching in Mamba cache 'align' mode is currently enabled. Its support is experimental.", True, True),
        ("This model does not officially support prefix caching. Enabling this manually may crash.", None, True),
        ("Mamba cache mode is set to 'align' for A by default when prefix caching is enabled", None, True),
        ("Mamba model without support for prefix caching with 'all' mode: falling back to 'align' mode.", None, True),
        ("Disabling cascade attention since it is not supported for hybrid models.", None, False),
        ("Resetting prefix cache...", None, False),
        ("Received request cmpl-1: prompt: 'why is prefix caching disabled'", None, False),
    ],
)
def test_a_notice_is_heard(message: str, enabled: bool | None, warned: bool) -> None:
    facts = read(f"{info(message)}\n{info(message)}")
    assert facts.prefix_caching_enabled is enabled
    assert facts.warnings == ((message,) if warned else ())


def test_an_error_is_no_notice() -> None:
    assert read(info("Error in request: 'prefix caching disabled' is no value", "ERROR")).prefix_caching_enabled is None


def test_a_log_of_dockers_json_file_driver_is_read() -> None:
    lines = COLOURED.splitlines(keepends=True)
    wrapped = (json.dumps({"log": line, "stream": "stdout", "time": "2026-11-29T14:38:02Z"}) for line in lines)
    assert read(wrapped) == read(COLOURED)


def test_a_disable_after_the_engine_line_counts() -> None:
    engine = info("Initializing a V1 LLM engine (v0.26.0) with config: model='a', enable_prefix_caching=True, seed=0")
    notice = info("Disabling prefix caching: model has non-causal attention layers.")
    assert read(engine).prefix_caching_enabled is True
    assert read(f"{engine}\n{notice}").prefix_caching_enabled is False


def test_a_block_size_set_by_the_engine_outdoes_the_flag() -> None:
    flag = info("non-default args: {'block_size': 16}")
    usual = "Setting kv cache block size to 64 for FLASHMLA backend(s)."
    hybrid = "Setting attention block size to 1072 tokens to ensure that attention page size is >= mamba page size."
    facts = read(f"{flag}\n{info(usual)}")
    assert (facts.block_size, facts.warnings) == (64, ())
    facts = read(f"{flag}\n{info(hybrid)}")
    assert (facts.block_size, facts.warnings) == (1072, (hybrid,))


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ("{'model': '/srv/a', 'api_key': 'sk-1', 'max_num_seqs': 8}", {"max_num_seqs": "8"}),
        (
            "{'kv_transfer_config': KVTransferConfig(kv_connector='LMCacheConnectorV1', x={'block_size': 64}), 'a': 1}",
            {"kv_transfer_config": "LMCacheConnectorV1"},
        ),
        ("{'speculative_config': {'method': 'eagle3', 'model': '/srv/b'}}", {"speculative_config": "eagle3"}),
        ("{'kv_events_config': KVEventsConfig(enable_kv_cache_events=True)}", {"kv_events_config": "set"}),
        ("{'chat_template': \"{{ 'block_size': 9, }}\", 'kv_cache_dtype': 'fp8'}", {"kv_cache_dtype": "fp8"}),
        ("{'enable_lora': None}", {}),
        ("{'max_num_seqs': 8, 'block_size': 3", {"max_num_seqs": "8"}),  # the line may have said 32
        ("{'max_num_seqs': 8, 'chat_template': 'it\\'s, 'block_size': 3,", {"max_num_seqs": "8"}),
    ],
)
def test_settings_are_kept_without_paths_and_keys(arguments: str, flags: dict[str, str]) -> None:
    assert read(info(f"non-default args: {arguments}")).flags == flags


def test_a_log_that_begins_amid_a_run_counts_it() -> None:
    facts = read(info(V1 + "Prefix cache hit rate: 42.0%") + "\n" + COLOURED)
    assert [(row.start, row.count) for row in timeline(facts.rates)] == [(0, 1), (1, 8)]


def test_json_records_are_read() -> None:
    record = {"asctime": "2026-11-29 14:38:02,123", "levelname": "INFO", "message": V1 + "Prefix cache hit rate: 42.0%"}
    (rate,) = read(json.dumps(record)).rates
    assert (rate.at, rate.device) == ("11-29 14:38:02", 0.42)


def test_the_last_start_gives_the_facts_and_all_starts_the_rates() -> None:
    facts = read(V0 + DISABLED + COLOURED)
    assert (facts.version, facts.block_manager_v2) == ("0.32.0", None)
    assert [(row.start, row.engine, row.count) for row in timeline(facts.rates)] == [(0, "", 2), (2, "0", 8)]


def test_a_long_stream_is_read_in_one_pass() -> None:
    def lines() -> Iterator[str]:
        for _ in range(2000):
            yield 'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
            yield "x" * 100_000
        yield info(V1 + "Prefix cache hit rate: 42.0%")

    assert len(read(lines()).rates) == 1


@given(st.text() | st.text(alphabet="{}()[]'\",=: \\0aT").map(lambda text: info("non-default args: {" + text)))
def test_no_text_is_too_odd(text: str) -> None:
    assert read(text).rates == ()


@given(st.lists(st.floats(0, 1), max_size=500))
def test_a_sparkline_keeps_to_its_width(ratios: list[float]) -> None:
    assert len(sparkline(ratios)) == min(len(ratios), 40)


@pytest.mark.parametrize(
    ("ratios", "spark"), [([], ""), ([0, 0.5, 1], "▁▅█"), ([0] * 40 + [1] * 40, "▁" * 20 + "█" * 20)]
)
def test_a_sparkline_is_drawn(ratios: list[float], spark: str) -> None:
    assert sparkline(ratios) == spark


ROLLING = "The log's 94.2% covers the last 1000 requests"
LIFETIME = "The log's 85.7% covers all blocks since the start"
BOTH = "The log's 90.0% (engine 0), 10.0% (engine 1) covers the last 1000 requests"
FELL = "not just the window with its 0.0%: reuse fell lately, and the log follows as older requests drop out."
ROSE = "not just the window with its 99.0%: reuse rose lately, and a lifetime average hardly shows it."


@pytest.mark.parametrize(
    ("logged", "window", "expected"),
    [
        ([], 0.5, "The log has no prefix cache hit rate: no traffic yet, caching off, or --disable-log-stats."),
        (rates(0.5, 0.942), None, f"{ROLLING}; the window has no ratio to compare it with."),
        (rates(0.1) + rates(0.942, start=1), None, f"{ROLLING}; the window has no ratio to compare it with."),
        (rates(0.5, 0.942), 0.95, f"{ROLLING} and agrees with the window's 95.0%."),
        (rates(0.942), 0.0, f"{ROLLING}, {FELL}"),
        (rates(0.857, span=Span.LIFETIME), 0.99, f"{LIFETIME}, {ROSE}"),
        (rates(0.9) + rates(0.1, engine="1"), 0.5, f"{BOTH} and agrees with the window's 50.0%."),
    ],
)
def test_log_and_window_are_compared(logged: list[LoggedRate], window: float | None, expected: str) -> None:
    assert difference(logged, window) == expected
