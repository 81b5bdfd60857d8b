"""What is said of evidence that nearly looks like a fault, or like health, and is not."""

import re

import pytest

from exporter.snapshot import Snapshot
from exporter.window import Tokens
from probes import logs
from probes.evidence import Evidence, Reply
from probes.judge import judge
from probes.plan import Arm
from probes.verdict import Severity, Verdict
from tests.inputs import CAPTURES, CASES, capture
from tests.probes.bodies import body, pair, snap

R, P, C = Arm.RETAINED, Arm.REPEAT, Arm.CONTROL
HITS = (Reply(2003, 1984),) * 4
MISSES = (Reply(2003, 0),) * 4


def replies(*rows: tuple[Arm, int | None], length: int = 2003) -> tuple[Reply, ...]:
    return tuple(Reply(length, cached, arm=arm) for arm, cached in rows)


def again(*rows: tuple[int, int]) -> tuple[Reply, ...]:
    return tuple(Reply(length, cached, same=True) for length, cached in rows)


def first(evidence: Evidence) -> Verdict:
    return judge(evidence)[0]


def told(verdict: Verdict) -> tuple[str, str]:
    return verdict.code.value, verdict.severity.name.lower()


def since_start(text: str) -> Evidence:
    """Return the window from a start with nothing counted."""
    text = re.sub(r"(?m)^process_start_time_seconds .*\n", "", text)
    return Evidence(snap(re.sub(r"(?m)^(vllm:(?!cache_config_info)\S+) .*$", r"\1 0.0", text)), snap(text))


@pytest.mark.parametrize("name", [path.stem for path in CAPTURES if re.search("unique-prefix|pressure", path.name)])
def test_unique_prompts_prove_nothing(name: str) -> None:
    verdict = first(since_start(capture(name)))
    if verdict.code == "preemption_inflation":
        return
    assert verdict.code == "unknown", verdict
    assert verdict.severity > Severity.WARNING


ZERO: dict[str, tuple[tuple[Snapshot, Snapshot], str, str]] = {
    "many short unique prompts": (pair(queries=1000, hits=0, prompt=1000, requests=40), "unknown", "notice"),
    "a hybrid of a small label": (
        pair(hybrid=True, queries=28000, hits=0, requests=40, prompt=28000),
        "unknown",
        "notice",
    ),
    "a hybrid's prompts of nine blocks": (
        pair(528, hybrid=True, queries=250000, hits=0, prompt=250000, requests=50),
        "unknown",
        "notice",
    ),
    "a hybrid's prompts of ten blocks": (
        pair(528, hybrid=True, queries=264000, hits=0, prompt=264000, requests=50),
        "enabled_but_never_reused",
        "fault",
    ),
    "prompts hardly longer than a block": (
        pair(784, hybrid=True, queries=40000, hits=0, prompt=40000, requests=40),
        "prefix_shorter_than_block",
        "notice",
    ),
    "prompts that a drafter leaves nothing of": (
        pair(1600, hybrid=True, queries=29000, hits=0, prompt=29000, requests=10, drafts=900),
        "spec_decode_drops_unit",
        "notice",
    ),
    "four ranks, many requests each": (
        pair(queries=[2e6] * 4, hits=[0] * 4, prompt=[2e6] * 4, requests=[1000] * 4),
        "unknown",
        "notice",
    ),
    "eight ranks, four of them asked": (
        pair(queries=[2050.0] * 4 + [0] * 4, hits=[0] * 8),
        "dp_spread",
        "warning",
    ),
    "a block of 2,000 tokens a request": (
        pair(queries=200000, hits=1600, prompt=200000, requests=100),
        "unknown",
        "notice",
    ),
    "all from the external tier": (
        pair(queries=200000, hits=0, prompt=200000, external_queries=200000, external_hits=180000, requests=100),
        "external_tier_only",
        "warning",
    ),
    "nearly all from the external tier": (
        pair(queries=200000, hits=2000, prompt=200000, external_queries=198000, external_hits=170000, requests=100),
        "external_tier_only",
        "notice",
    ),
    "requests in flight": (pair(queries=1000500, hits=800000, prompt=1000000, preemptions=0), "healthy", "ok"),
    "requests looked up again": (
        pair(queries=1510000, hits=486000, prompt=1024000, preemptions=0),
        "preemption_inflation",
        "warning",
    ),
    "preemptions": (
        pair(queries=1000500, hits=800000, prompt=1000000, preemptions=4),
        "preemption_inflation",
        "warning",
    ),
    "no lookup, and nothing stated": (pair(None, queries=0, hits=0, prompt=48000), "apc_disabled", "warning"),
}


@pytest.mark.parametrize(("window", "code", "severity"), ZERO.values(), ids=ZERO)
def test_of_counters_alone(window: tuple[Snapshot, Snapshot], code: str, severity: str) -> None:
    assert told(first(Evidence(*window))) == (code, severity)


@pytest.mark.parametrize(("sends", "reuse"), [(4, None), (5, False)])
def test_each_cache_may_miss_once_before_reuse_is_judged(sends: int, reuse: bool | None) -> None:
    """Case 16: one send more than there are engines."""
    evidence = Evidence(*pair(queries=[2050.0] * 4, hits=[0] * 4), replies=MISSES[:1] * sends)
    assert evidence.reuse is reuse
    assert first(evidence).code == "dp_spread"


def test_what_was_found_before_is_not_too_short_for_a_block() -> None:
    start, end = (body(784, hybrid=True, queries=1e6 + rise, hits=5e5, prompt=1e6 + rise) for rise in (0, 10400))
    verdict = first(Evidence(snap(start), snap(end)))
    assert told(verdict) == ("unknown", "notice")
    assert "0.0% were found; 49.5% since" in verdict.sentence


def test_two_models_of_one_server_are_no_ranks() -> None:
    before = snap(body(queries=0, hits=0) + body(None, model="other", queries=0, hits=0))
    after = snap(body(queries=2050, hits=0) + body(None, model="other", queries=2050, hits=0))
    assert told(first(Evidence(before, after))) == ("unknown", "notice")


def test_ranks_are_no_cause_where_the_canary_hits() -> None:
    window = pair(queries=[2e6] * 4, hits=[0] * 4, prompt=[2e6] * 4, requests=[1000] * 4)
    assert first(Evidence(*window, replies=HITS)).code == "prefix_varies"


def test_the_window_and_the_lifetime_are_both_told() -> None:
    case = CASES / "22-lifetime-vs-window"
    before, after = (snap((case / name).read_text(encoding="utf-8")) for name in ("t0.prom", "t1.prom"))
    verdict = first(Evidence(before, after))
    assert told(verdict) == ("unknown", "notice")
    assert "0.0% were found; 89.0% since the engine's start" in verdict.sentence


def test_a_gauge_of_all_blocks_since_the_start_is_no_health() -> None:
    gauge = 'vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.857\nvllm:prompt_tokens_total{model_name="m"} '
    verdict = first(Evidence(snap(gauge + "1000\n"), snap(gauge + "2000\n")))
    assert verdict.code == "unknown"
    assert "its 85.7% is of all blocks since its start" in verdict.sentence


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (body(queries=9000, hits=8000, prompt=10000), body(queries=500, hits=0, prompt=500), "counters restarted"),
        (body(queries=100, hits=80, prompt=1000), body(queries=200, hits=850, prompt=1100), "hits exceed queries"),
    ],
)
def test_what_keeps_a_window_from_telling_is_named(before: str, after: str, words: str) -> None:
    verdict = first(Evidence(snap(before), snap(after)))
    assert verdict.code == "unknown"
    assert words in verdict.sentence


OFF = body(enabled=False, queries=0, hits=0, prompt=48000)


@pytest.mark.parametrize("before", [body(queries=90000, hits=80000, prompt=100000), OFF])
def test_caching_off_is_seen_after_a_restart_and_at_rest(before: str) -> None:
    assert told(first(Evidence(snap(before), snap(OFF)))) == ("apc_disabled", "fault")


def test_a_log_that_says_off_outdoes_the_label() -> None:
    log = logs.read(
        "WARNING 11-29 14:38:02 [core.py:133] Disabling prefix caching: model has non-causal attention layers."
    )
    assert told(first(Evidence(*pair(queries=0, hits=0, prompt=48000), log=log))) == ("apc_disabled", "fault")
    assert told(first(Evidence(*pair(queries=48000, hits=40000, prompt=48000), log=log))) == ("healthy", "ok")


def test_a_logs_block_size_outdoes_a_smaller_label() -> None:
    log = logs.read("INFO 11-29 14:38:02 [config.py:376] Setting attention block size to 528 tokens to ensure that")
    verdict = first(Evidence(*pair(queries=10400, hits=0, prompt=10400, requests=40), log=log))
    assert (verdict.code, verdict.numbers["block_size"]) == ("prefix_shorter_than_block", 528)


def test_a_mean_prompt_is_of_the_window() -> None:
    start = body(880, hybrid=True, queries=2e6, hits=0, prompt=2e6, lengths_sum=2e6, lengths=10000)
    end = body(880, hybrid=True, queries=2.25e6, hits=0, prompt=2.25e6, lengths_sum=2.25e6, lengths=10005)
    verdict = first(Evidence(snap(start), snap(end)))
    assert (verdict.code, verdict.numbers["prompt_tokens"]) == ("enabled_but_never_reused", 50000)


UNITS: dict[str, tuple[str, tuple[Reply, ...], str, str]] = {
    "a hybrid's prompts below its true unit": (
        body(hybrid=True, queries=9, hits=0),
        again(*[(700, 0)] * 4),
        "unknown",
        "unknown",
    ),
    "the same, and one above": (
        body(hybrid=True, queries=9, hits=0),
        again(*[(700, 0)] * 4, (2000, 1600)),
        "block_label_unreliable",
        "notice",
    ),
    "hits that are multiples of the stated unit": (
        body(528, hybrid=True, queries=9, hits=0, drafts=9),
        again((1000, 0), (2900, 2112), (5200, 4224)),
        "spec_decode_drops_unit",
        "notice",
    ),
    "too short for a drafter": (
        body(queries=61, hits=0, drafts=9),
        again((30, 0), (31, 0)),
        "spec_decode_drops_unit",
        "notice",
    ),
    "a drafter that loses nothing": (
        body(queries=9, hits=3, drafts=9),
        again((2003, 2000), (1000, 992)),
        "healthy",
        "ok",
    ),
    "four units and a drafter, and nothing": (
        body(1600, hybrid=True, queries=9, hits=0, drafts=9),
        replies(*[(P, 0)] * 4, length=7200),
        "spec_decode_no_reuse",
        "fault",
    ),
    "four units, and nothing": (
        body(880, hybrid=True, queries=9, hits=0),
        replies(*[(P, 0)] * 4, length=3960),
        "enabled_but_never_reused",
        "fault",
    ),
    "a prompt below its block": (body(4096, queries=9, hits=0), replies(*[(P, 0)] * 4), "unknown", "unknown"),
    "shorter than ten small units": (body(queries=9, hits=0), replies(*[(P, 0)] * 4, length=150), "unknown", "unknown"),
    "ten small units": (
        body(queries=9, hits=0),
        replies(*[(P, 0)] * 4, length=160),
        "enabled_but_never_reused",
        "fault",
    ),
}


@pytest.mark.parametrize(("after", "sent", "code", "severity"), UNITS.values(), ids=UNITS)
def test_of_prompts_sent_again(after: str, sent: tuple[Reply, ...], code: str, severity: str) -> None:
    verdict = first(Evidence(after=snap(after), replies=sent))
    assert told(verdict) == (code, severity)
    assert not ("align" in after and "units of 16" in verdict.sentence)


def test_without_metrics_nothing_found_is_no_fault() -> None:
    assert told(first(Evidence(replies=MISSES))) == ("unknown", "unknown")


CYCLES: dict[str, tuple[tuple[Reply, ...], int, str, str]] = {
    "only the template's head is kept": (
        replies((R, 16), (P, 1984), (R, 16), (P, 1984)),
        1,
        "canary_evicted",
        "warning",
    ),
    "only the template's head is found": (
        replies(*[(R, 16), (P, 16), (P, 16)] * 2),
        1,
        "volatile_prompt_head",
        "warning",
    ),
    "two ranks answer in turn": (replies(*[(R, 0), (P, 0), (P, 1984)] * 2), 2, "dp_spread", "warning"),
    "a balancer without metrics": (replies(*[(R, 0), (P, 0), (P, 1984)] * 2), 0, "dp_spread", "notice"),
    "one cache": (replies(*[(R, 0), (P, 0), (P, 1984)] * 2), 1, "canary_evicted", "warning"),
    "found once, and not of late": (replies((P, 1984), (P, 0), (P, 0), (P, 0)), 1, "unknown", "unknown"),
}


@pytest.mark.parametrize(("sent", "engines", "code", "severity"), CYCLES.values(), ids=CYCLES)
def test_of_cycles(sent: tuple[Reply, ...], engines: int, code: str, severity: str) -> None:
    zeros: list[float] = [0.0] * engines
    after = snap(body(queries=zeros, hits=zeros)) if engines else None
    assert told(first(Evidence(after=after, replies=sent))) == (code, severity)


def test_what_the_canary_found_outside_is_not_taken_off_the_device() -> None:
    window = pair(queries=12012, hits=2000, prompt=12012, external_queries=10000, external_hits=7936, requests=6)
    evidence = Evidence(*window, replies=HITS, canary=Tokens(8012, 7936), canary_requests=4)
    assert evidence.found_share == 0.5
    assert first(evidence).code == "healthy"


def test_a_canary_that_does_not_tell_its_hits_leaves_the_traffics_unknown() -> None:
    silent = (Reply(2010, None),) * 3
    evidence = Evidence(
        *pair(queries=100030, hits=4000, prompt=100030),
        replies=silent,
        canary=Tokens(6030, 0),
        canary_requests=3,
        canary_told=False,
    )
    assert evidence.found_share is None
    assert [verdict.code for verdict in judge(evidence)] == ["usage_details_off"]
    alone = Evidence(
        *pair(queries=6030, hits=4000, prompt=6030),
        replies=silent,
        canary=Tokens(6030, 0),
        canary_requests=3,
        canary_told=False,
    )
    assert [verdict.code for verdict in judge(alone)] == ["usage_details_off", "no_traffic"]


def test_a_connector_without_counters_contradicts_nothing() -> None:
    log = logs.read(
        "INFO 11-29 14:38:02 [utils.py:1] non-default args: "
        "{'kv_transfer_config': KVTransferConfig(kv_connector='LMCacheConnectorV1')}"
    )
    window, sent = pair(queries=8012, hits=0, prompt=8012), Tokens(8012, 7936)
    assert first(Evidence(*window, replies=HITS, canary=sent, canary_requests=4)).code == "signals_contradict"
    assert first(Evidence(*window, replies=HITS, canary=sent, canary_requests=4, log=log)).code == "healthy"


def test_one_adapter_that_is_never_found() -> None:
    base, adapter = (Reply(2003, 1984, model="demo-7b"),) * 2, (Reply(2003, 0, model="demo-lora"),) * 4
    verdict = first(Evidence(replies=base + adapter))
    assert told(verdict) == ("enabled_but_never_reused", "warning")
    assert verdict.numbers["models"] == "demo-lora"
