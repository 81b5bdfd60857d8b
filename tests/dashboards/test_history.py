"""Queries that look back further than a test can run, on series made up for promtool."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards import queries as q
from dashboards.queries import Query
from dashboards.verdicts import WORDS
from probes.curve import SHARES
from probes.verdict import Code
from tests.conftest import Accepted

NOISE = 'target:apc_organic_noise:rate5m{target="a"}'


def run(accepted: Accepted, folder: Path, series: dict[str, str], *asked: tuple[Query, str, dict[str, float]]) -> None:
    """Check at which times queries have which samples, by labels."""
    tests: list[dict[str, Any]] = []
    for query, at, samples in asked:
        expr = query.expr.replace("$target", ".*").replace("$model", ".*").replace("$engine", ".*")
        expected = [{"labels": labels, "value": value} for labels, value in samples.items()]
        tests.append({"expr": expr, "eval_time": at, "exp_samples": expected})
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    path = folder / "test.yml"
    path.write_text(
        yaml.safe_dump(
            {
                "evaluation_interval": "1m",
                "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}],
            }
        )
    )
    accepted("test", "rules", str(path))


def test_the_hit_rate_of_an_hour_and_of_a_day_ago(accepted: Accepted, tmp_path: Path) -> None:
    run(
        accepted,
        tmp_path,
        {
            'target:apc_organic_hit_tokens:rate5m{target="a"}': "900+0x1400 100+0x100",
            'target:apc_organic_tokens:rate5m{target="a"}': "1000+0x1500",
            'target:apc_organic_hit_tokens:rate5m{target="b"}': "0+0x1500",
            'target:apc_organic_tokens:rate5m{target="b"}': "9000+0x1500",
        },
        (q.users_hit_rate(), "1450m", {"{}": 0.01}),
        (q.users_hit_rate("1h"), "1450m", {"{}": 0.09}),
        (q.users_hit_rate("1d"), "1450m", {"{}": 0.09}),
        (q.users_hit_rate("1d"), "1430m", {}),
    )


def test_the_last_hit_is_told_through_noise_and_idle_hours(accepted: Accepted, tmp_path: Path) -> None:
    run(
        accepted,
        tmp_path,
        {'target:apc_organic_hit_tokens:rate2m{target="a"}': "500+0x10 20+0x20 _x200", NOISE: "13+0x300"},
        (q.SINCE_LAST_HIT, "10m", {"{}": 0}),
        (q.SINCE_LAST_HIT, "25m", {"{}": 855}),
        (q.SINCE_LAST_HIT, "200m", {"{}": 11_355}),
    )


def test_prefill_saved_counts_the_minutes_with_traffic_alone(accepted: Accepted, tmp_path: Path) -> None:
    series = {'target:apc_saved_prefill_seconds:rate5m{target="a"}': "0.5+0x9 stale _x80"}
    run(accepted, tmp_path, series, (q.SAVED, "59m", {"{}": 300}), (q.LOST, "59m", {}))


def test_restarts_are_counted_also_where_no_start_time_is_told(accepted: Accepted, tmp_path: Path) -> None:
    run(
        accepted,
        tmp_path,
        {
            'apc_engine_start_time_seconds{target="a"}': "60+0x10 _x5 900+0x90",
            'apc_prompt_tokens_total{target="b",engine="0"}': "100+10x10 0+10x10 0+10x20",
            'apc_prompt_tokens_total{target="a",engine="0"}': "100+10x10 _x5 0+10x20",
        },
        (q.RESTARTS, "35m", {"{}": 3}),
        (q.RESTARTS_AT, "35m", {'{target="a"}': 900_000}),
        (q.RESTARTS_AT, "100m", {}),
    )


def test_a_settings_change_is_marked_and_a_first_start_is_not(accepted: Accepted, tmp_path: Path) -> None:
    old = 'apc_engine_info{target="a",version="1"}'
    new = 'apc_engine_info{target="a",version="2"}'
    run(
        accepted,
        tmp_path,
        {old: "1+0x9 stale", new: "_x14 1+0x30"},
        (q.SETTINGS_CHANGED, "1m", {}),
        (q.SETTINGS_CHANGED, "9m", {}),
        (q.SETTINGS_CHANGED, "15m", {new: 1}),
        (q.SETTINGS_CHANGED, "20m", {}),
    )


def test_the_worst_verdict_stands_for_a_target(accepted: Accepted, tmp_path: Path) -> None:
    places = {code: place for place, (code, _, _) in enumerate(WORDS)}
    run(
        accepted,
        tmp_path,
        {
            'target:apc_verdict:current{target="a",verdict="healthy"}': "1",
            'target:apc_verdict:current{target="a",verdict="no_traffic"}': "1",
            'target:apc_verdict:current{target="b",verdict="usage_details_off"}': "1",
            'target:apc_verdict:current{target="b",verdict="apc_disabled"}': "1",
        },
        (q.VERDICT, "0m", {'{target="a"}': places[Code.NO_TRAFFIC], '{target="b"}': places[Code.APC_DISABLED]}),
    )


@pytest.mark.parametrize(("up", "healthy", "reason"), [(1, 1, "answers"), (1, 0, "unhealthy"), (0, 0, "refused")])
def test_an_engine_is_in_one_state(accepted: Accepted, tmp_path: Path, up: int, healthy: int, reason: str) -> None:
    run(
        accepted,
        tmp_path,
        {
            'apc_engine_up{target="a"}': str(up),
            'apc_engine_healthy{target="a"}': str(healthy),
            'apc_engine_scrape_error{target="a",reason="refused"}': str(1 - up),
            'apc_engine_scrape_error{target="a",reason="dns"}': "0",
        },
        (q.ENGINES, "0m", {f'{{target="a",reason="{reason}"}}': 1}),
    )


def test_the_curve_has_a_bar_for_each_share(accepted: Accepted, tmp_path: Path) -> None:
    series = {f'apc_curve_ttft_seconds{{target="a",shared_percent="{share}"}}': str(share + 1) for share in SHARES}
    expected = [(query, "0m", {"{}": float(share + 1)}) for query, share in zip(q.CURVE, SHARES, strict=True)]
    run(accepted, tmp_path, series, *expected)


def test_missing_fields_and_faults_are_rows_of_one_table(accepted: Accepted, tmp_path: Path) -> None:
    run(
        accepted,
        tmp_path,
        {
            'apc_engine_field_found{target="a",field="ttft"}': "0",
            'apc_engine_field_found{target="a",field="hit"}': "1",
            'apc_engine_data_fault{target="b",fault="negative"}': "1",
            'apc_engine_data_fault{target="b",fault="conflict"}': "0",
        },
        (q.GAPS, "0m", {'{target="a",field="ttft"}': 0, '{target="b",fault="negative"}': 1}),
    )
