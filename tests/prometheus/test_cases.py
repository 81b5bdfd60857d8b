"""Field reports of which the alerts must or must not fire: played as series of what exporter and probe would export."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.metrics import families
from exporter.read import read
from exporter.scrape import Reason, Scrape, ScrapeError
from tests.conftest import Accepted
from tests.inputs import CASES, cases, expectation
from tests.prometheus.test_rules import PROMETHEUS, RULES

Samples = dict[str, float]  # series -> value

STEPS = 20  # of half a minute, between two answers of an engine
MINUTES = STEPS // 2
WORKING = {"target": "a"}
# Played in prometheus/tests/timing.yml: it has neither an engine's answer nor a canary's result.
ELSEWHERE = {"54-misfire-grace-one-second"}


def samples(body: bytes | None, status: int = 200) -> Samples:
    """Return what the exporter makes of an answer of an engine whose health page is fine."""
    try:
        if status != 200:
            raise ScrapeError(Reason.HTTP_5XX, str(status))
        scrape = Scrape("a", 0.1, read(body or b""), healthy=True)
    except ScrapeError as error:
        scrape = Scrape("a", 0.1, error=error, healthy=True)
    return of(scrape)


def of(scrape: Scrape) -> Samples:
    return {
        selector(sample.name, sample.labels): sample.value for family in families([scrape]) for sample in family.samples
    }


def selector(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"


def between(before: Samples, after: Samples) -> dict[str, str]:
    """Return each series as it goes from one answer to the next, counters evenly and gauges at its end."""
    found = {}
    for series, value in after.items():
        start = before.get(series, value) if "_total{" in series else value
        found[series] = f"{start}+{(value - start) / STEPS}x{STEPS - 1}"
    return found


def chained(*phases: dict[str, str]) -> dict[str, str]:
    """Return series that go through these phases; one that a phase lacks has a gap there."""
    return {
        series: " ".join(phase.get(series, f"_x{STEPS}") for phase in phases)
        for series in dict.fromkeys(series for phase in phases for series in phase)
    }


def played(case: Path, *names: str) -> dict[str, str]:
    answers = [samples((case / f"{name}.prom").read_bytes()) for name in names]
    return chained(*(between(before, after) for before, after in pairwise(answers)))


def earlier(case: Path) -> dict[str, str]:
    """Return ten minutes of the engine before it was started as the case has it: then it hit."""
    first = samples((case / "t0.prom").read_bytes())
    tokens = {"apc_queried": 30_000, "apc_hit": 20_000, "apc_prompt": 30_000}
    rates = {series: next((rate for start, rate in tokens.items() if series.startswith(start)), 0) for series in first}
    starts = {series: 0 if rate else first[series] for series, rate in rates.items()}
    return {series: f"{starts[series]}+{rate}x{STEPS - 1}" for series, rate in rates.items()}


def canary(case: Path, windows: int) -> dict[str, str]:
    sent = json.loads((case / "canary.json").read_text(encoding="utf-8"))["per_window"]
    tokens = {"apc_canary_prompt_tokens_total": "prompt_tokens", "apc_canary_cached_tokens_total": "cached_tokens"}
    return {selector(name, WORKING): f"0+{sent[key] / STEPS}x{windows * STEPS}" for name, key in tokens.items()}


def sightings(pairs: list[tuple[float, float]], target: str) -> dict[str, str]:
    """Return the canary's figures: of each cycle the cached share of the first request and of the repeat."""
    retained, repeat = zip(*pairs, strict=True)
    cycle = 2  # steps
    gauges = {"retained": retained, "repeat": repeat}
    found = {
        selector("apc_canary_hit_ratio", {"target": target, "arm": arm}): " ".join(f"{v}x{cycle - 1}" for v in values)
        for arm, values in gauges.items()
    }
    runs = " ".join(f"{number}x{cycle - 1}" for number in range(len(pairs)))
    return {**found, selector("apc_canary_runs_total", {"target": target, "result": "ok"}): runs}


def results(case: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (case / "canary.jsonl").read_text(encoding="utf-8").splitlines()]


def evicted_between_runs(case: Path) -> dict[str, str]:
    seen = [result["cached_tokens"] / 2003 for result in results(case)]
    return sightings(list(zip(seen[::2], seen[1::2], strict=True)) * 10, "a")


def lora(case: Path) -> dict[str, str]:
    series: dict[str, str] = {}
    for model in ("demo-7b", "demo-lora"):
        first, second = (r["cached_tokens"] / r["prompt_tokens"] for r in results(case) if r["model"] == model)
        series |= sightings([(first, second), *[(second, second)] * 19], model)
    return series


def midnight(case: Path) -> dict[str, str]:
    """Return the canary's retained arm over midnight; the repeat follows within the cycle and so on one day."""
    seen = json.loads((case / "midnight.json").read_text(encoding="utf-8"))
    at = [datetime.fromisoformat(result["at"]) for result in seen]
    assert at[1].date() > at[0].date()
    shares = [result["cached_tokens"] / 2003 for result in seen]
    return sightings([(share, shares[0]) for share in (shares[0], *shares, *[shares[-1]] * 16)], "a")


def loading(case: Path) -> dict[str, str]:
    """Return the ten minutes that an engine is given, in which nothing answers: longer than the case's."""
    timeline = json.loads((case / "timeline.json").read_text(encoding="utf-8"))
    assert timeline[1]["t_s"] < expectation(case)["alerts"]["silent_until_s"] == 60 * MINUTES
    down = of(Scrape("a", 0.1, error=ScrapeError(Reason.REFUSED, ""), healthy=False))
    return {series: f"{value}x{STEPS}" for series, value in down.items()}


def unusable(case: Path) -> Iterator[tuple[str, dict[str, str]]]:
    for name in ("empty.prom", "python_only.prom"):
        yield name, between({}, samples((case / name).read_bytes()))
    status = json.loads((case / "response_500.json").read_text(encoding="utf-8"))["status"]
    yield "response_500", between({}, samples(None, status))


def scenarios() -> Iterator[Any]:
    def of_case(number: str) -> Path:
        (found,) = CASES.glob(f"{number}-*")
        return found

    plain = {number: played(of_case(number), "t0", "t1") for number in ("08", "22", "23")}
    # The engine was started anew with a vision tower, whence it never hits, though it did before. After ten minutes it
    # is no longer young.
    six = of_case("06")
    idle = played(six, "t0", "t0")
    restarted = chained(earlier(six), idle, played(six, "t0", "t1"))
    found = {
        **plain,
        "06": restarted,
        "08 b": played(of_case("08"), "t0_b", "t1_b"),
        "15": lora(of_case("15")),
        "36": {**played(of_case("36"), "t0", "t1", "t2"), **canary(of_case("36"), 2)},
        "48": midnight(of_case("48")),
        "52": evicted_between_runs(of_case("52")),
        "65": loading(of_case("65")),
        **{f"19 {name}": series for name, series in unusable(of_case("19"))},
    }
    for name, series in sorted(found.items()):
        yield pytest.param(of_case(name[:2]), series, id=name)


@pytest.mark.parametrize(("case", "series"), list(scenarios()))
def test_alerts(case: Path, series: dict[str, str], accepted: Accepted, tmp_path: Path) -> None:
    wanted = expectation(case)["alerts"]
    wanted = wanted.get("t2", wanted)
    silent = [*wanted.get("silent", []), *(["ApcEngineDown"] if "silent_until_s" in wanted else [])]
    minutes = 3 * MINUTES if case.name.startswith("06") else 2 * MINUTES if case.name.startswith("36") else MINUTES
    asked = [
        {
            "expr": f'count(count_over_time(ALERTS{{alertname="{alert}",alertstate="firing"}}[{minutes}m])) > 0',
            "eval_time": f"{minutes}m",
            "exp_samples": [{"value": 1}] if fires else [],
        }
        for alerts, fires in ((wanted.get("fire", []), True), (silent, False))
        for alert in alerts
    ]
    assert asked
    assert series
    check(accepted, tmp_path, series, asked)


def check(accepted: Accepted, folder: Path, series: dict[str, str], asked: list[dict[str, Any]]) -> None:
    content = {
        "rule_files": [str(path) for path in sorted((PROMETHEUS / "rules").glob("*.yml"))],
        "evaluation_interval": "30s",
        "group_eval_order": list(dict.fromkeys(rule.group for rule in RULES)),
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": asked,
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    accepted("test", "rules", str(path))


def test_every_case_of_the_alerts_is_played() -> None:
    numbers = {param.id[:2] for param in scenarios()}
    assert {case.name for case in cases("alerts") if case.name[:2] not in numbers} == ELSEWHERE
