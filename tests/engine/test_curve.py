"""The causal curve on a real vLLM: what each share finds in the cache, and that waiting falls with it."""

from probes.canary import Canary
from probes.curve import ORDER, PER_CYCLE, SHARES, Curve, Point
from probes.plan import Arm
from tests.engine.test_canary import BLOCK, canary_of


def test_a_sweep(vllm: str) -> None:
    canary = Canary(canary_of(vllm), curve=Curve(3600, 10**6))
    cycles = [canary.run() for _ in range(-(-len(ORDER) // PER_CYCLE))]
    canary.close()
    assert cycles[-1].sweep
    assert (cycles[-1].sweep.result, cycles[-1].sweep.note) == ("ok", "")
    found = [(s.planned, s.result) for cycle in cycles for s in cycle.sent if isinstance(s.planned, Point)]
    units = ((cycles[-1].of(Arm.REPEAT)[-1].prompt_tokens or 0) - 1) // BLOCK
    assert {p.share: p.expected for p, _ in found} == {s: round(units * s / 100) * BLOCK for s in SHARES}
    missed = {p.share: abs((result.cached_tokens or 0) - p.expected) for p, result in found}
    assert (missed[0], missed[100]) == (0, 0)
    assert max(missed.values()) <= BLOCK
    curve = cycles[-1].curve
    assert list(curve) == list(SHARES)
    assert curve[0] > curve[50] > curve[100]
