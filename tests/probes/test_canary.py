"""Cycles against the simulated engine: what is sent, what is learned, what is exported."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from demo.engine import Engine, serving
from demo.rank import Settings
from exporter.config import Target
from exporter.snapshot import Snapshot
from probes.budget import Budget
from probes.canary import Canary, Cycle
from probes.client import Endpoint
from probes.config import CanaryTarget, load
from probes.metrics import Metrics, hit_ratio, median_ttft, seconds_per_token
from probes.outcome import ErrorClass, Names
from probes.plan import Arm

FAST = Settings(base_ms=1.0, decode_ms=0.0, prefill_us_per_token=20.0)


def target(url: str, *, scraped: bool = True, budget: int = 10**6, **endpoint: str) -> CanaryTarget:
    engine = Target("t", url, f"{url}/metrics") if scraped else None
    return CanaryTarget("t", Endpoint(url, **endpoint), Names(), engine, 60.0, budget, 5.0, 2.0)


@contextmanager
def canary(engine: Engine, **options: object) -> Iterator[Canary]:
    made = Canary(target(engine.url, **options))  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with serving(FAST) as made:
        yield made


def cached(cycle: Cycle, arm: Arm) -> list[int | None]:
    return [cycle.cached(result) for result in cycle.of(arm)]


def counted(snapshot: Snapshot | None, name: str) -> float:
    assert snapshot
    return float(sum(getattr(cache, name) for cache in snapshot.caches))


def test_first_cycle_cold_then_retained(engine: Engine) -> None:
    with canary(engine) as made:
        first, second = made.run(), made.run()
    assert (first.result, second.result) == ("ok", "ok")
    assert first.prefix_is_new
    assert not second.prefix_is_new
    assert cached(first, Arm.RETAINED) == [0]
    assert cached(second, Arm.CONTROL) == [0]
    length = second.of(Arm.REPEAT)[0].prompt_tokens
    assert length
    for hits in cached(second, Arm.RETAINED) + cached(second, Arm.REPEAT):
        assert hits
        assert hits % 16 == 0
        assert length - 100 < hits < length
    assert length >= 4 * 16


def test_the_engines_counters_rise_by_exactly_the_canarys_tokens(engine: Engine) -> None:
    with canary(engine) as made:
        made.run()
        cycle = made.run()
    assert cycle.before
    assert cycle.after
    sent = [each.result for each in cycle.sent]
    rise = {
        name: counted(cycle.after.snapshot, name) - counted(cycle.before.snapshot, name)
        for name in ("queried", "hit", "prompt")
    }
    prompt, hits = sum(r.prompt_tokens or 0 for r in sent), sum(r.cached_tokens or 0 for r in sent)
    assert rise == {"queried": prompt, "hit": hits, "prompt": prompt}


def test_what_is_measured(engine: Engine) -> None:
    with serving(Settings(base_ms=1, decode_ms=2, prefill_us_per_token=100)) as slow, canary(slow) as made:
        made.run()
        cycle = made.run()
    cold, warm = median_ttft(cycle, Arm.CONTROL), median_ttft(cycle, Arm.REPEAT)
    assert cold
    assert warm
    assert cold > 0.1 > warm
    assert hit_ratio(cycle, Arm.CONTROL) == 0
    assert 0.9 < (hit_ratio(cycle, Arm.REPEAT) or 0) < 1
    assert seconds_per_token(cycle) == pytest.approx(100e-6, rel=0.15)
    assert engine.url


def test_each_rank_is_asked_by_its_header() -> None:
    with serving(replace(FAST, ranks=3)) as engine, canary(engine) as made:
        made.run()
        cycle = made.run()
    assert [each.planned.rank for each in cycle.sent if each.planned.arm is Arm.REPEAT] == ["0", "1", "2"]
    assert all(hits for hits in cached(cycle, Arm.RETAINED) + cached(cycle, Arm.REPEAT))


def test_the_control_is_cold_also_where_the_salt_is_not_known() -> None:
    with serving(replace(FAST, version=(0, 8, 5))) as engine, canary(engine) as made:
        cycles = [made.run() for _ in range(2)]
    assert [each.planned.extra for cycle in cycles for each in cycle.sent] == [{}] * sum(len(c.sent) for c in cycles)
    assert [cached(cycle, Arm.CONTROL) for cycle in cycles] == [[0], [0]]


def test_the_prompt_grows_past_a_unit_that_the_engine_misstates() -> None:
    """Case 01 and 03: a canary that is shorter than the unit looks for a longer one."""
    with serving(FAST, faults={"block_size": 700}) as engine, canary(engine, scraped=False) as made:
        cycles = [made.run() for _ in range(4)]
    assert cached(cycles[0], Arm.REPEAT) in ([0, 0], [700, 700])
    assert any(hits for hits in cached(cycles[-1], Arm.REPEAT))


def test_a_gateway_has_no_metrics(engine: Engine) -> None:
    with canary(engine, scraped=False) as made:
        cycle = made.run()
    assert (cycle.before, cycle.after, cycle.result) == (None, None, "ok")
    assert all(hits for hits in cached(cycle, Arm.REPEAT))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("unauthorized", ErrorClass.AUTH),
        ("not_found", ErrorClass.BASE_URL),
        ("rate_limited", ErrorClass.RATE_LIMITED),
        ("error_in_200", ErrorClass.ERROR_IN_200),
        ("login_page", ErrorClass.HTML_LOGIN),
        ("server_error", ErrorClass.SERVER_ERROR),
        ("truncated_stream", ErrorClass.STREAM_TRUNCATED),
        ("wedge", ErrorClass.TIMEOUT_FIRST_TOKEN),
    ],
)
def test_each_failure_is_counted_under_its_class_and_passes(engine: Engine, fault: str, reason: ErrorClass) -> None:
    metrics = Metrics([target(engine.url)])
    with canary(engine) as made:
        engine.switch({fault: True})
        broken = made.run()
        engine.switch({fault: None})
        mended = made.run()
    for cycle in (broken, mended):
        metrics.take(cycle)
    assert (broken.result, mended.result) == ("failed", "ok")
    assert broken.failure
    assert broken.failure.error_class is reason
    text = generate_latest(metrics.registry).decode()
    assert f'reason="{reason}",target="t"}} 1.0' in text or f'reason="{reason}",target="t"}} 4.0' in text
    assert 'apc_canary_runs_total{result="failed",target="t"} 1.0' in text


def test_a_restarted_engine_is_served_again_at_once(engine: Engine) -> None:
    with canary(engine) as made:
        made.run()
        engine.switch({"restart": 0.3})
        results = [made.run()]
        deadline = time.monotonic() + 10
        while results[-1].result != "ok":
            assert time.monotonic() < deadline
            results.append(made.run())
    assert {cycle.failure.error_class for cycle in results if cycle.failure} <= {
        ErrorClass.CONNECTION_REFUSED,
        ErrorClass.NETWORK,
    }
    assert cached(results[-1], Arm.RETAINED) == [0]
    assert all(hits for hits in cached(results[-1], Arm.REPEAT))


def test_the_budget_is_never_exceeded(engine: Engine) -> None:
    with canary(engine, budget=6000) as made:
        cycles = [made.run() for _ in range(4)]
    assert [cycle.result for cycle in cycles] == ["ok", "over_budget", "over_budget", "over_budget"]
    used = sum((s.result.prompt_tokens or 0) + (s.result.completion_tokens or 0) for c in cycles for s in c.sent)
    assert 0 < used <= 6000


def test_the_search_for_a_longer_unit_keeps_within_the_default_budget() -> None:
    """A canary that finds nothing goes on asking, so that it sees when reuse is back."""
    (default,) = load({}).targets
    with serving(FAST, faults={"lookup_skipped": True}) as engine:
        now = [0.0]
        made = Canary(replace(target(engine.url), tokens_per_minute=default.tokens_per_minute), lambda: now[0])
        cycles = []
        for _ in range(6):
            cycles.append(made.run())
            now[0] += 60
        engine.switch({"lookup_skipped": None})
        cycles.append(made.run())
        made.close()
    lengths = [cycle.of(Arm.REPEAT)[0].prompt_tokens or 0 for cycle in cycles]
    assert [cycle.result for cycle in cycles] == ["ok"] * 7
    assert max(lengths) > 3 * 1024
    assert lengths[-1] < 1100
    assert all(hits for hits in cached(cycles[-1], Arm.REPEAT))


@pytest.mark.parametrize(
    ("unit", "budget", "tokens"),
    [(1600, 20_000, 2.5 * 1600), (528, 20_000, 4.5 * 528), (528, 8_000, 2.5 * 528), (16, 6_000, 63.5 * 16)],
)
def test_a_large_unit_gets_a_prompt_that_the_budget_allows(unit: int, budget: int, tokens: float) -> None:
    with serving(replace(FAST, block_size=unit)) as engine, canary(engine, budget=budget) as made:
        cycle = made.run()
    assert cycle.result == "ok"
    assert cycle.of(Arm.REPEAT)[0].prompt_tokens == pytest.approx(tokens, rel=0.1)
    assert all(hits for hits in cached(cycle, Arm.REPEAT))


def test_what_a_cycle_would_take_is_said(engine: Engine) -> None:
    with canary(engine, budget=2000) as made:
        cycle = made.run()
    assert cycle.result == "over_budget"
    needed = re.fullmatch(
        r"a cycle takes (\d+) tokens, more than are left of 2000 a minute: raise APC_CANARY_TOKENS_PER_MINUTE",
        cycle.note,
    )
    assert needed
    with canary(engine, budget=int(needed[1]) + 1000) as made:
        assert made.run().result == "ok"


def test_a_minute_later_the_budget_is_new() -> None:
    now = [0.0]
    budget = Budget(100, lambda: now[0])
    budget.spend(60)
    now[0] = 30
    budget.spend(40)
    assert not budget.allows(1)
    now[0] = 60.1
    assert budget.allows(60)
    assert not budget.allows(61)


def test_close_ends_a_hanging_request(engine: Engine) -> None:
    engine.switch({"wedge": True})
    made = Canary(target(engine.url))
    thread = threading.Thread(target=made.run)
    thread.start()
    deadline = time.monotonic() + 5
    while not engine.requests["GET", "/v1/models", "2xx"] and time.monotonic() < deadline:
        pass
    started = time.monotonic()
    made.close()
    thread.join(3)
    assert not thread.is_alive()
    assert time.monotonic() - started < 2


def test_labels_are_made_at_the_start() -> None:
    text = generate_latest(Metrics([target("http://a:1")]).registry).decode()
    for arm in Arm:
        assert f'apc_canary_requests_total{{arm="{arm}",target="t"}} 0.0' in text
        assert f'apc_canary_failures_total{{arm="{arm}",reason="auth",target="t"}} 0.0' in text
    assert 'apc_canary_runs_total{result="missed",target="t"} 0.0' in text
    assert "apc_canary_last_ttft_seconds{" not in text
    assert "apc_canary_last_success_timestamp_seconds{" not in text
    assert "_created" not in text


def test_two_registries_share_nothing() -> None:
    """Case 57."""
    one, other = Metrics([target("http://a:1")]), Metrics([target("http://a:1")])
    one.count("t", "ok")
    assert 'result="ok",target="t"} 0.0' in generate_latest(other.registry).decode()


def test_every_family_is_accepted_by_promtool(engine: Engine, promtool: object) -> None:
    metrics = Metrics([target(engine.url)])
    with canary(engine) as made:
        for _ in range(2):
            metrics.take(made.run())
    checked = promtool("check", "metrics", stdin=generate_latest(metrics.registry).decode())  # type: ignore[operator]
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
