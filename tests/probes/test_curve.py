"""The causal curve: what a sweep asks, what it finds on the simulated engine, and that the rest stays as it was."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from demo.engine import Engine, serving
from demo.rank import Settings
from probes import plan
from probes.canary import Canary, Cycle
from probes.client import Result
from probes.curve import ORDER, PER_CYCLE, ROUNDS, SHARES, Curve, Point, Size, point
from probes.evidence import of_cycles
from probes.metrics import Metrics
from probes.outcome import ErrorClass, Failure
from probes.plan import Arm
from probes.stream import Mark
from tests.probes.test_canary import counted, target

FAST = Settings(base_ms=1.0, decode_ms=1.0, prefill_us_per_token=5.0)
CYCLES = -(-len(ORDER) // PER_CYCLE)  # that a sweep takes
LIKE = plan.cycle("seed", 1, 160)[-1]
SIZE = Size(prompt=1032, first=960, unit=16)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def sweeping(
    engine: Engine, tokens: int = 10**6, budget: int = 10**6, **options: bool
) -> Iterator[tuple[Canary, Clock]]:
    clock = Clock()
    made = Canary(target(engine.url, budget=budget, **options), clock, Curve(3600, tokens, clock))  # type: ignore[arg-type]
    try:
        yield made, clock
    finally:
        made.close()


def run(made: Canary, clock: Clock, cycles: int) -> list[Cycle]:
    """Run cycles a minute apart."""
    found = []
    for _ in range(cycles):
        found.append(made.run())
        clock.now += 60.1
    return found


def asked(cycles: list[Cycle]) -> list[tuple[Point, Result]]:
    return [(s.planned, s.result) for cycle in cycles for s in cycle.sent if isinstance(s.planned, Point)]


def exported(metrics: Metrics) -> dict[str, str]:
    text = generate_latest(metrics.registry).decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("apc_curve_"))


@pytest.mark.parametrize(("share", "expected"), [(0, 0), (25, 256), (50, 512), (75, 768), (100, 1024)])
def test_a_point_shares_whole_units_and_then_nothing(share: int, expected: int) -> None:
    made = point(share, LIKE, SIZE, "unique")
    assert (made.arm, made.expected, made.measures) == (Arm.CURVE, expected, False)
    ours, theirs = (planned.messages[0]["content"] for planned in (made, LIKE))
    assert made.messages[1:] == LIKE.messages[1:]
    assert len(ours.split()) == len(theirs.split()) == 160
    if share == 100:
        assert made.messages == LIKE.messages
        return
    [place] = [n for n, pair in enumerate(zip(ours.split(), theirs.split(), strict=True)) if pair[0] != pair[1]]
    assert ours.split()[place] == "unique"
    shared = len(" ".join(theirs.split()[:place])) * SIZE.first / len(theirs)
    assert expected <= shared < expected + 16 or (share, shared) == (0, 0)


@pytest.mark.parametrize(
    ("unit", "prompt", "expected"),
    [
        (16, 1017, [0, 256, 512, 752, 1008]),
        (1024, 4608, [0, 1024, 2048, 3072, 4096]),
        (528, 2376, [0, 528, 1056, 1584, 2112]),
    ],
)
def test_what_is_expected_comes_in_units(unit: int, prompt: int, expected: list[int]) -> None:
    size = Size(prompt, prompt - 50, unit)
    assert [point(share, LIKE, size, "u").expected for share in SHARES] == expected


def test_each_share_is_asked_as_often_and_not_always_after_the_same() -> None:
    assert [ORDER.count(share) for share in SHARES] == [ROUNDS] * len(SHARES)
    before = [{ORDER[n - 1] for n, share in enumerate(ORDER) if n and share == wanted} for wanted in SHARES]
    assert all(len(others) > 1 for others in before)


def test_a_sweep_finds_what_it_planned_and_time_falls_with_it() -> None:
    slow = Settings(base_ms=1, decode_ms=2, prefill_us_per_token=50)
    with serving(slow) as engine, sweeping(engine) as (made, clock):
        cycles = run(made, clock, CYCLES)
    found = asked(cycles)
    assert [planned.share for planned, _ in found] == list(ORDER)
    length = cycles[-1].of(Arm.REPEAT)[-1].prompt_tokens or 0
    units = (length - 1) // 16
    wanted = {share: round(units * share / 100) * 16 for share in SHARES}
    assert [planned.expected for planned, _ in found] == [wanted[share] for share in ORDER]
    missed = {p.share: (result.cached_tokens or 0) - p.expected for p, result in found}
    assert (missed[0], missed[100]) == (0, 0)
    assert set(missed.values()) <= {-16, 0, 16}  # a text's place among the tokens is known to a unit
    assert [cycle.sweep and cycle.sweep.result for cycle in cycles] == [None] * (CYCLES - 1) + ["ok"]
    curve = cycles[-1].curve
    assert list(curve) == list(SHARES)
    assert curve[25] == statistics.median(r.ttft or 0 for p, r in found if p.share == 25)
    assert sorted(curve.values(), reverse=True) == list(curve.values())
    assert curve[0] - curve[100] == pytest.approx(wanted[100] * 50e-6, rel=0.2)


def test_it_is_exported_when_complete_and_until_the_next_one_is() -> None:
    metrics = Metrics([target("http://a:1")])
    with serving(FAST) as engine, sweeping(engine) as (made, clock):
        for cycle in run(made, clock, CYCLES - 1):
            metrics.take(cycle)
        before = exported(metrics)
        metrics.take(made.run())
        after = exported(metrics)
        clock.now += 60
        idle = made.run()
        metrics.take(idle)
        assert exported(metrics) == after
        clock.now = 3600.0
        begun = made.run()
    assert before == {
        f'apc_curve_sweeps_total{{result="{r}",target="t"}}': "0.0" for r in ("ok", "partial", "failed", "over_budget")
    }
    gauges = {f'apc_curve_ttft_seconds{{shared_percent="{share}",target="t"}}' for share in SHARES}
    assert set(after) - set(before) == gauges
    assert after['apc_curve_sweeps_total{result="ok",target="t"}'] == "1.0"
    assert (asked([idle]), len(asked([begun]))) == ([], PER_CYCLE)
    assert list(begun.curve) == list(SHARES)


def test_a_cycle_holds_its_part_of_the_sweep() -> None:
    """Engine counters before and after differ by exactly the tokens sent in between; verdicts know of all."""
    metrics = Metrics([target("http://a:1")])
    with serving(FAST) as engine, sweeping(engine) as (made, clock):
        cycles = run(made, clock, 3)
    for cycle in cycles:
        metrics.take(cycle)
        assert cycle.before
        assert cycle.after
        rise = [counted(cycle.after.snapshot, n) - counted(cycle.before.snapshot, n) for n in ("prompt", "hit")]
        results = [each.result for each in cycle.sent]
        assert rise == [sum(r.prompt_tokens or 0 for r in results), sum(r.cached_tokens or 0 for r in results)]
    evidence = of_cycles(cycles)
    assert evidence.organic
    assert (evidence.organic.prompt, evidence.organic.hits) == (0, 0)
    assert {reply.arm for reply in evidence.replies} == {Arm.RETAINED, Arm.CONTROL, Arm.REPEAT}
    text = generate_latest(metrics.registry).decode()
    assert 'apc_canary_requests_total{arm="curve",target="t"} 6.0' in text
    assert 'apc_canary_ttft_seconds_count{arm="curve"' not in text
    prompt = sum(each.result.prompt_tokens or 0 for cycle in cycles for each in cycle.sent)
    assert f'apc_canary_prompt_tokens_total{{target="t"}} {float(prompt)}' in text


def test_a_gateway_has_a_curve_as_well_and_one_that_is_silent_of_cached_tokens() -> None:
    with (
        serving(replace(FAST, prompt_tokens_details=False)) as engine,
        sweeping(engine, scraped=False) as (made, clock),
    ):
        last = run(made, clock, CYCLES)[-1]
    assert last.sweep
    assert last.sweep.result == "ok"
    assert list(last.curve) == list(SHARES)


def test_a_share_that_was_not_cached_as_planned_is_left_out() -> None:
    with serving(FAST) as engine, sweeping(engine) as (made, clock):
        engine.switch({"apc_off": True})
        last = run(made, clock, CYCLES)[-1]
    assert list(last.curve) == [0]
    assert last.sweep
    assert last.sweep.result == "partial"
    assert (
        last.sweep.note.startswith("100 %: 0 tokens were cached and not 1008; ") or "25 %: 0 tokens" in last.sweep.note
    )


def test_a_failed_cycle_takes_the_points_away_and_the_next_good_one_begins_anew() -> None:
    metrics = Metrics([target("http://a:1")])
    with serving(FAST) as engine, sweeping(engine) as (made, clock):
        cycles = run(made, clock, CYCLES + 1)
        engine.switch({"server_error": True})
        cycles += run(made, clock, 1)
        engine.switch({"server_error": None})
        cycles += run(made, clock, 1)
    for cycle in cycles:
        metrics.take(cycle)
    assert (list(cycles[-3].curve), cycles[-2].curve, cycles[-1].curve) == (list(SHARES), {}, {})
    assert [p.share for p, _ in asked(cycles[-1:])] == [0, 25]
    assert not [name for name in exported(metrics) if "ttft" in name]


def test_another_engine_or_another_length_has_no_points_yet() -> None:
    for change in ((1000, 7.0), (900, 5.0)):
        curve = Curve(3600, 10**6, Clock())
        curve.meet(1000, 5.0)
        curve.points = {0: 1.0}
        curve.meet(1000, None)  # its metrics page did not answer
        curve.meet(1000, 5.0)
        assert curve.points
        curve.meet(*change)
        assert curve.points == {}
        assert curve.shares() == (0, 25)


def test_a_request_that_fails_ends_the_sweep_until_the_next_one_is_due() -> None:
    clock = Clock()
    curve = Curve(3600, 10**6, clock)
    curve.points = {0: 1.0}
    assert curve.shares() == (0, 25)
    failure = Failure(ErrorClass.SERVER_ERROR, "500")
    ended = curve.take(point(0, LIKE, SIZE, "u"), Result(None, 1.0, 0.0, failure=failure), None)
    assert ended
    assert (ended.result, ended.note, curve.points, curve.shares()) == ("failed", "500", {}, ())
    clock.now = 3600
    assert curve.shares() == (0, 25)


def test_answers_in_one_piece_are_no_measurement_and_one_alone_does_no_harm() -> None:
    curve = Curve(3600, 10**6, Clock())
    curve.shares()
    for number, share in enumerate(ORDER):
        made = point(share, LIKE, SIZE, "u")
        marks = frozenset({Mark.BUFFERED}) if share == 50 or number == 0 else frozenset()
        ended = curve.take(made, Result(0.5, 1.0, 0.0, 1032, cached_tokens=made.expected, marks=marks), made.expected)
    assert ended
    assert (ended.result, ended.note) == ("partial", "50 %: not timed, as the answer is buffered")
    assert curve.points == {0: 0.5, 25: 0.5, 75: 0.5, 100: 0.5}


def test_a_sweep_beyond_its_tokens_is_not_made_and_says_so() -> None:
    with serving(FAST) as engine, sweeping(engine, tokens=5000) as (made, clock):
        first, second = run(made, clock, 2)
    assert first.sweep
    assert first.sweep.result == "over_budget"
    assert first.sweep.note.endswith("tokens: raise APC_CURVE_TOKENS")
    assert (first.result, asked([first, second]), second.sweep) == ("ok", [], None)


def test_a_sweep_leaves_the_next_cycle_its_tokens() -> None:
    with serving(FAST) as engine, sweeping(engine, budget=9000) as (made, clock):
        cycles = run(made, clock, 2)
    assert [cycle.result for cycle in cycles] == ["ok", "ok"]
    assert [cycle.sweep and cycle.sweep.result for cycle in cycles] == ["over_budget", None]
    assert cycles[0].sweep
    assert "APC_CANARY_TOKENS_PER_MINUTE" in cycles[0].sweep.note
