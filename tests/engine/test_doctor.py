"""Faults made on a real vLLM - by flags, cache size and traffic - and the verdict that each gets."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from exporter.config import Target
from probes.canary import Canary
from probes.client import Endpoint
from probes.config import CanaryTarget
from probes.doctor import examine
from probes.evidence import of_cycles
from probes.judge import judge
from probes.outcome import Names
from probes.verdict import Verdict
from tests.engine.conftest import start
from tests.engine.traffic import complete

SHARED = "You are the support desk of a network provider. " * 40
COUNTER = itertools.count()
Traffic = Callable[[str], None]


def chat(url: str, system: str, user: str, **more: Any) -> None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    answer = complete(url, "/v1/chat/completions", messages=messages, **more)
    assert answer["status"] == 200, answer


def shared(url: str) -> None:
    for _ in range(4):
        chat(url, SHARED, f"question {next(COUNTER)}")


def stamped(url: str) -> None:
    for _ in range(4):
        chat(url, f"It is 10:{next(COUNTER):04}. {SHARED}", "Hello?")


def with_logprobs(url: str) -> None:
    for _ in range(3):
        chat(url, SHARED, "Hello?", prompt_logprobs=1)


def short(url: str) -> None:
    for i in range(4):
        complete(url, prompt=[65, 66, 67, 68, i])


def nothing(url: str) -> None:
    del url


def target(url: str, **endpoint: str) -> CanaryTarget:
    return CanaryTarget(
        "t", Endpoint(url, **endpoint), Names(), Target("t", url, f"{url}/metrics"), 60.0, 10**9, 30.0, 20.0
    )


def examined(url: str, traffic: Traffic = nothing, **endpoint: str) -> list[Verdict]:
    canary = Canary(target(url, **endpoint))
    cycles = []
    for _ in range(3):
        cycles.append(canary.run())
        traffic(url)
    cycles.append(canary.run())
    canary.close()
    return judge(of_cycles(cycles))


@pytest.mark.parametrize(
    ("traffic", "code"),
    [
        (nothing, "healthy"),
        (shared, "healthy"),
        (stamped, "prefix_varies"),
        (with_logprobs, "lookup_skipped"),
        (short, "prefix_shorter_than_block"),
    ],
)
def test_traffic(vllm: str, traffic: Traffic, code: str) -> None:
    verdicts = examined(vllm, traffic)
    assert verdicts[0].code == code, verdicts


def test_a_model_that_is_not_there(vllm: str) -> None:
    verdicts = examined(vllm, model="qwen3")
    assert (verdicts[0].code, verdicts[0].numbers["error_class"]) == ("canary_failing", "unknown_model")
    assert "qwen2.5-7b-instruct" in verdicts[0].sentence


def test_from_nothing_to_a_verdict(vllm: str) -> None:
    steps: list[tuple[str, bool]] = []
    report = examine(target(vllm), lambda name, good, _: steps.append((name, good)))
    assert report.verdicts[0].code == "healthy"
    assert all(good for _, good in steps)
    assert [name for name, _ in steps][-3:] == ["canary cycle 1", "canary cycle 2", "canary cycle 3"]


def test_caching_off() -> None:
    with start("--no-enable-prefix-caching", "--api-key", "sk-demo-0000") as url:
        assert examined(url)[0].numbers["error_class"] == "auth"
        assert examined(url, api_key="sk-demo-0000")[0].code == "apc_disabled"


def test_no_statistics_and_no_details() -> None:
    with start("--disable-log-stats", "--no-enable-prompt-tokens-details") as url:
        codes = {verdict.code for verdict in examined(url)}
    assert codes >= {"metrics_unusable", "usage_details_off"}


def test_a_cache_that_traffic_overruns() -> None:
    with start("--num-gpu-blocks-override", "80", "--max-model-len", "2048") as url:
        verdicts = examined(url, stamped)
    assert verdicts[0].code == "canary_evicted", verdicts


def test_after_the_server_is_gone() -> None:
    with start() as url:
        assert judge(of_cycles([Canary(target(url)).run()]))[0].code in {"healthy", "unknown"}
    assert examined(url)[0].code == "starting_or_down"
