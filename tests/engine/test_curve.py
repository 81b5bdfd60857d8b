"""The causal curve on a real vLLM: what each share finds in the cache, and that waiting falls with it."""

from probes.canary import Canary
from probes.client import Mark
from probes.curve import ORDER, PER_CYCLE, SHARES, Curve, Point
from probes.plan import Arm
from tests.engine.test_canary import BLOCK, canary_of


def test_a_sweep(vllm: str) -> None:
    canary = Canary(canary_of(vllm), curve=Curve(3600, 10**6))
    cycles = [canary.run() for _ in range(-(-len(ORDER) // PER_CYCLE))]
    canary.close()
    sweep = cycles[-1].sweep
    assert sweep
    held_back = [fault for fault in sweep.note.split("; ") if fault]  # a busy host gives an answer in one piece
    assert all(fault.endswith(f"not timed, as the answer is {Mark.BUFFERED}") for fault in held_back)
    assert sweep.result == ("partial" if held_back else "ok")
    found = [(s.planned, s.result) for cycle in cycles for s in cycle.sent if isinstance(s.planned, Point)]
    units = ((cycles[-1].of(Arm.REPEAT)[-1].prompt_tokens or 0) - 1) // BLOCK
    assert {p.share: p.expected for p, _ in found} == {s: round(units * s / 100) * BLOCK for s in SHARES}
    missed = {p.share: abs((result.cached_tokens or 0) - p.expected) for p, result in found}
    assert (missed[0], missed[100]) == (0, 0)
    assert max(missed.values()) <= BLOCK
    curve = cycles[-1].curve
    assert len(curve) == len(SHARES) - len(held_back)
    assert all(seconds > 0 for seconds in curve.values())
    quickest = [min(result.ttft or 0 for p, result in found if p.share == share) for share in (0, 100)]
    assert 0 < quickest[1] < quickest[0]  # what disturbs a host only adds to a time
