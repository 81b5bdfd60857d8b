"""The canary against a real vLLM: what it measures, and that the engine's counters agree token by token."""

import pytest

from exporter.config import Target
from probes.canary import Canary
from probes.client import Client, Endpoint, Request
from probes.config import CanaryTarget
from probes.metrics import seconds_per_token
from probes.outcome import Names
from probes.plan import Arm
from tests.engine.traffic import increase, snap

BLOCK = 32
FRAME = 1 + len("user\n") + 2 + 1 + len("assistant\n")  # what the chat template adds to one message of the tiny model
LENGTHS = [40, 63, 64, 65, 96, 97, 127, 128, 129, 200, 255, 256, 257, 500, 511, 513, 1000, 1023, 1025, 2049]


def canary_of(url: str) -> CanaryTarget:
    engine = Target("t", url, f"{url}/metrics")
    return CanaryTarget("t", Endpoint(url), Names(), engine, 60.0, 10**6, 30.0, 20.0)


@pytest.mark.parametrize("length", LENGTHS)
def test_cached_tokens_of_a_prompt_sent_twice(vllm: str, length: int) -> None:
    content = f"{length} ".ljust(length - FRAME, "x")
    client = Client(Endpoint(vllm))
    request = Request(({"role": "user", "content": content},), 4, {"ignore_eos": True})
    first, second = client.send(request), client.send(request)
    client.close()
    assert (first.prompt_tokens, second.prompt_tokens) == (length, length)
    assert second.cached_tokens == (length - 1) // BLOCK * BLOCK


def test_cycles(vllm: str) -> None:
    canary = Canary(canary_of(vllm))
    before = snap(vllm)
    cycles = [canary.run() for _ in range(3)]
    rise = increase(before.caches, snap(vllm).caches)
    canary.close()
    assert [cycle.result for cycle in cycles] == ["ok"] * 3
    assert all(each.result.dropped == () for cycle in cycles for each in cycle.sent)
    last = cycles[-1]
    assert last.unit == BLOCK
    for arm in (Arm.RETAINED, Arm.REPEAT):
        assert all((cached := last.cached(r)) and cached % BLOCK == 0 and cached > 900 for r in last.of(arm))
    assert [last.cached(r) for r in last.of(Arm.CONTROL)] == [0]  # the same text under a salt of its own
    sent = [each.result for cycle in cycles for each in cycle.sent]
    prompt = sum(r.prompt_tokens or 0 for r in sent)
    assert (rise["queried"], rise["prompt"]) == (prompt, prompt)
    assert rise["hit"] == rise["source local_cache_hit"] == sum(r.cached_tokens or 0 for r in sent)
    quickest = {arm: min(r.ttft or 0 for cycle in cycles for r in cycle.of(arm)) for arm in (Arm.CONTROL, Arm.REPEAT)}
    assert 0 < quickest[Arm.REPEAT] < quickest[Arm.CONTROL]  # what disturbs a host only adds to a time
    assert any(0 < (seconds_per_token(cycle) or 0) < 0.001 for cycle in cycles)
