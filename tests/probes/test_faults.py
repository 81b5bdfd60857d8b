"""Faults injected into the simulated engine, and the verdict that each gets; and healthy variants, which get none."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from demo.engine import Engine, serving
from demo.rank import Settings
from exporter.collector import Collector
from exporter.config import Target
from exporter.engine import Dialect
from probes.canary import Canary
from probes.client import Endpoint
from probes.config import CanaryTarget
from probes.doctor import examine
from probes.evidence import of_cycles
from probes.judge import judge
from probes.outcome import Names
from probes.verdict import Severity, Verdict

FAST = Settings(base_ms=2.0, decode_ms=2.0, prefill_us_per_token=60.0)
SHARED = "You are the support desk of a network provider. " * 40  # 1920 tokens
Traffic = Callable[[Engine], None]


def ask(engine: Engine, system: str, user: str = "Hello?", **more: Any) -> None:
    body = {
        "model": engine.settings.model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "max_tokens": 2,
    }
    requests.post(f"{engine.url}/v1/chat/completions", json=body | more, timeout=20)


def shared(engine: Engine) -> None:
    for i in range(6):
        ask(engine, SHARED, f"question {i}")


def stamped(engine: Engine) -> None:
    for _ in range(6):
        ask(engine, f"{next(STAMPS)} {SHARED}")


STAMPS = iter(f"2026-11-29T10:{i // 60:02}:{i % 60:02}" for i in range(3600))


def short(engine: Engine) -> None:
    for i in range(6):
        ask(engine, "Be brief.", f"question {i}")


def with_logprobs(engine: Engine) -> None:
    for i in range(3):
        ask(engine, SHARED, f"question {i}", prompt_logprobs=1)


def flood(engine: Engine) -> None:
    """Push everything else out of a small cache."""
    for _ in range(4):
        ask(engine, f"{next(STAMPS)} {SHARED}")


def at_once(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: ask(engine, SHARED, f"question {i}"), range(16)))


def shared_with_drafts(engine: Engine) -> None:
    engine.switch({"spec_decode": True})
    shared(engine)


def nothing(engine: Engine) -> None:
    del engine


def canary_of(engine: Engine, **target: Any) -> Canary:
    endpoint = Endpoint(engine.url, target.pop("api_key", ""), target.pop("model", ""))
    return Canary(replace(CanaryTarget("t", endpoint, Names(), scraped(engine), 60.0, 10**9, 5.0, 1.0), **target))


def scraped(engine: Engine) -> Target:
    return Target("t", engine.url, f"{engine.url}/metrics")


def examined(engine: Engine, traffic: Traffic = nothing, **target: Any) -> list[Verdict]:
    """Send three cycles with traffic between them, and judge."""
    canary, cycles = canary_of(engine, **target), []
    for _ in range(3):
        cycles.append(canary.run())
        traffic(engine)
    cycles.append(canary.run())
    canary.close()
    return judge(of_cycles(cycles))


FAULTS: dict[str, tuple[Settings, dict[str, object], Traffic, str]] = {
    "caching off": (replace(FAST, prefix_caching=False), {}, nothing, "apc_disabled"),
    "caching off, with traffic": (replace(FAST, prefix_caching=False), {}, shared, "apc_disabled"),
    "caching switched off while it runs": (FAST, {"apc_off": True}, shared, "apc_disabled"),
    "caching off on V0": (
        replace(FAST, prefix_caching=False, dialect=Dialect.VLLM_V0, version=(0, 7, 3)),
        {},
        shared,
        "apc_disabled",
    ),
    "lookups skipped by the engine": (FAST, {"lookup_skipped": True}, shared, "apc_disabled"),
    "lookups skipped by the traffic": (FAST, {}, with_logprobs, "lookup_skipped"),
    "a timestamp in the head": (FAST, {}, stamped, "prefix_varies"),
    "prompts shorter than a block": (replace(FAST, block_size=128), {}, short, "prefix_shorter_than_block"),
    "a cache too small": (replace(FAST, blocks=300), {}, flood, "canary_evicted"),
    "usage without details": (replace(FAST, prompt_tokens_details=False), {}, shared, "usage_details_off"),
    "usage details null": (FAST, {"null_details": True}, shared, "usage_details_off"),
    "no usage, and a first token as late as any": (
        replace(FAST, base_ms=20.0, prefill_us_per_token=0.0),
        {"no_usage": True},
        shared,
        "unknown",
    ),
    "no engine series": (FAST, {"no_metrics": True}, shared, "metrics_unusable"),
    "empty metrics": (FAST, {"empty_metrics": True}, shared, "metrics_unusable"),
    "metrics fail": (FAST, {"metrics_500": True}, shared, "metrics_unusable"),
    "metrics are a web page": (FAST, {"metrics_html": True}, shared, "metrics_unusable"),
    "a dead engine core": (FAST, {"dead": True}, nothing, "starting_or_down"),
    "a login page": (FAST, {"login_page": True}, nothing, "auth_login_page"),
    "a wrong base URL": (FAST, {"not_found": True}, nothing, "canary_failing"),
    "a key that is refused": (replace(FAST, api_key="sk-demo-0000"), {}, nothing, "canary_failing"),
    "too many requests": (FAST, {"rate_limited": True}, nothing, "canary_failing"),
    "an error in a 200": (FAST, {"error_in_200": True}, nothing, "canary_failing"),
    "a wedged engine": (FAST, {"wedge": True}, nothing, "canary_failing"),
    "gone": (FAST, {"restart": 60}, nothing, "starting_or_down"),
}


@pytest.mark.parametrize(("settings", "faults", "traffic", "code"), FAULTS.values(), ids=FAULTS)
def test_fault(settings: Settings, faults: dict[str, object], traffic: Traffic, code: str) -> None:
    with serving(settings) as engine:
        engine.switch(faults)
        verdicts = examined(engine, traffic)
    assert verdicts[0].code == code, verdicts
    assert (verdicts[0].severity < Severity.OK) == (code != "unknown")


HEALTHY: dict[str, tuple[Settings, Traffic]] = {
    "the usual": (FAST, shared),
    "no traffic": (FAST, nothing),
    "blocks of 8": (replace(FAST, block_size=8), shared),
    "blocks of 128": (replace(FAST, block_size=128), shared),
    "four ranks": (replace(FAST, ranks=4), shared),
    "vLLM 0.9": (replace(FAST, version=(0, 9, 2)), shared),
    "vLLM 0.8 V1, which counts blocks": (replace(FAST, version=(0, 8, 5)), shared),
    "vLLM 0.7 V0, which counts nothing": (
        replace(FAST, dialect=Dialect.VLLM_V0, version=(0, 7, 3), decode_ms=3.0),
        shared,
    ),
    "SGLang": (replace(FAST, dialect=Dialect.SGLANG), shared),
    "sixteen at once": (FAST, at_once),
    "one request now and then": (FAST, lambda engine: ask(engine, SHARED)),
    "a drafter": (FAST, shared_with_drafts),
    "a slow prefill": (replace(FAST, prefill_us_per_token=300.0), shared),
}


@pytest.mark.parametrize(("settings", "traffic"), HEALTHY.values(), ids=HEALTHY)
def test_healthy(settings: Settings, traffic: Traffic) -> None:
    with serving(settings) as engine:
        verdicts = examined(engine, traffic)
    assert verdicts[0].code == "healthy", verdicts
    assert {verdict.severity for verdict in verdicts} <= {Severity.OK, Severity.INFO}


def test_without_usage_the_time_to_the_first_token_tells() -> None:
    with serving(FAST) as engine:
        engine.switch({"no_usage": True})
        verdicts = examined(engine, shared)
    assert verdicts[0].code == "healthy", verdicts
    assert "sooner than a miss's" in verdicts[0].sentence


def test_a_restart_between_two_cycles_is_no_fault() -> None:
    restarted = threading.Event()

    def restart(engine: Engine) -> None:
        if not restarted.is_set():
            restarted.set()
            engine.switch({"restart": 0})
            while not answers(engine):
                pass

    def answers(engine: Engine) -> bool:
        try:
            return requests.get(f"{engine.url}/health", timeout=5).ok
        except requests.ConnectionError:
            return False

    with serving(FAST) as engine:
        verdicts = examined(engine, restart)
    assert {verdict.severity for verdict in verdicts} <= {Severity.OK, Severity.INFO}, verdicts


def test_a_first_cycle_does_not_tell_a_prefix_that_varies_from_one_that_does_not_stay() -> None:
    with serving(FAST) as engine, closing(canary_of(engine)) as canary:
        before = Collector.of_one(scraped(engine)).scrape()[0]
        stamped(engine)
        first = replace(canary.run(), before=before)
        (verdict, *_) = judge(of_cycles([first]))
        assert (verdict.code, verdict.severity) == ("unknown", Severity.NOTICE)
        assert "either something varies" in verdict.sentence
        assert judge(of_cycles([first, canary.run()]))[0].code == "prefix_varies"


def test_an_unknown_model() -> None:
    with serving(FAST) as engine:
        verdicts = examined(engine, model="qwen3")
    assert verdicts[0].code == "canary_failing"
    assert verdicts[0].numbers["error_class"] == "unknown_model"
    assert "VLLM_MODEL" in verdicts[0].remedy


def test_the_doctor_sees_an_eviction_when_it_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def busy(seconds: float) -> None:
        pauses.append(seconds)
        flood(engine)

    monkeypatch.setattr("probes.doctor.time", SimpleNamespace(sleep=busy))
    with serving(replace(FAST, blocks=300)) as engine:
        scraped = Target("t", engine.url, f"{engine.url}/metrics")
        target = CanaryTarget("t", Endpoint(engine.url, "", ""), Names(), scraped, 60.0, 10**9, 5.0, 1.0)
        report = examine(target, lambda *_: None, pause=7.5)
    assert pauses == [0, 7.5, 7.5]
    assert [verdict.code for verdict in report.verdicts][:1] == ["canary_evicted"]
