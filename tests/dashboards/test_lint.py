"""The lint: the cases' bad dashboards are rejected, ours are not, and each rule finds what it is for."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dashboards.__main__ import main
from dashboards.lint import Surroundings, lint, surroundings
from dashboards.promql import matched, seconds, summed_shares, windows
from tests.inputs import CASES, expectation

OUT = Path(__file__).parents[2] / "dashboards" / "out"
AROUND = surroundings()


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("name", ["25*/panel_bad.json", "26*/dashboard_bad.json", "27*/variables_bad.json"])
def test_bad_dashboards_of_the_cases_are_rejected(name: str) -> None:
    (path,) = CASES.glob(name)
    wanted = expectation(path.parent)["dashboard_lint"]
    found = lint(load(path), AROUND)
    for error in wanted.get("errors") or wanted["reject"]:
        assert any(error in fault for fault in found), (error, found)


def test_the_provisioned_source_is_that_of_the_case() -> None:
    (path,) = CASES.glob("26*/datasource.yml")
    assert surroundings(path).sources == AROUND.sources


@pytest.mark.parametrize("path", sorted(OUT.glob("*.json")), ids=lambda path: path.stem)
def test_our_dashboards_are_clean(path: Path) -> None:
    assert lint(load(path), AROUND) == []


@pytest.fixture
def board() -> dict[str, Any]:
    return copy.deepcopy(load(OUT / "apc-capacity.json"))


def panel(board: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(p for p in board["panels"] if p["type"] == "timeseries")
    return found


def faults(board: dict[str, Any]) -> list[str]:
    return [fault.partition(": ")[2] or fault for fault in lint(board, AROUND)]


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        (
            "sum(apc_kv_usage_ratio)",
            "sum() over *_perc, *_ratio, *_rate: apc_kv_usage_ratio; sum both parts, then divide",
        ),
        ("sum by (target) (target:apc_hit:ratio_rate5m)", "sum() over *_perc, *_ratio, *_rate"),
        ("rate(apc_preemptions_total[1m30s])", "1m30s < 2 x 60s"),
        ("increase(apc_preemptions_total[${__interval}])", "$__interval in rate"),
        ("apc_kv_usage", "apc_kv_usage is neither declared nor recorded"),
        ('apc_kv_usage_ratio{model_name="$model"}', "model used with = instead of =~"),
    ],
)
def test_queries(board: dict[str, Any], expr: str, fault: str) -> None:
    panel(board)["targets"][0]["expr"] = expr
    (found,) = faults(board)
    assert fault in found


@pytest.mark.parametrize(
    "expr",
    [
        "avg(apc_kv_usage_ratio)",
        "sum(rate(apc_hit_tokens_total[$__rate_interval]))",
        "sum(engine:apc_hit_tokens:rate5m) / sum(engine:apc_lookup_tokens:rate5m)",
        "max_over_time(apc_kv_usage_ratio[15s])",
        'count(apc_engine_info{version="apc_nothing"})',
        "max(rate(apc_preemptions_total[5m])) * max(apc_kv_usage_ratio)",
    ],
)
def test_sound_queries(board: dict[str, Any], expr: str) -> None:
    panel(board)["targets"][0]["expr"] = expr
    assert faults(board) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"type": "graph"}, "graph is an Angular panel, which Grafana 12 does not show"),
        ({"type": "someones-clock-panel"}, "someones-clock-panel needs a plugin"),
        ({"fieldConfig": {"defaults": {}, "overrides": []}}, "no unit"),
        ({"gridPos": {"x": 20, "y": 100, "w": 8, "h": 4}}, "beyond column 24"),
        ({"gridPos": {"x": 0, "y": 1, "w": 4, "h": 4}}, "on panel 2"),
        ({"datasource": {"type": "prometheus", "uid": "${other}"}}, "datasource ${other}"),
        ({"id": None}, "panel id null"),
    ],
)
def test_panels(board: dict[str, Any], change: dict[str, Any], fault: str) -> None:
    panel(board).update(change)
    assert faults(board) == [fault]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"includeAll": False}, "includeAll false"),
        ({"allValue": None}, "allValue is not .*"),
        ({"refresh": 1}, "not read anew with the time range"),
        ({"current": {"value": ["m"]}}, "All is not the default"),
        ({"query": "label_values(up, model_name)"}, "label_values without a product metric"),
        ({"query": 'label_values(apc_engine_info{target="$target"}, model_name)'}, "variable model chained on target"),
    ],
)
def test_variables(board: dict[str, Any], change: dict[str, Any], fault: str) -> None:
    next(v for v in board["templating"]["list"] if v["name"] == "model").update(change)
    assert faults(board) == [fault]


def test_a_source_variable_has_to_start_with_a_source_that_is_there(board: dict[str, Any]) -> None:
    assert lint(board, Surroundings(frozenset({"elsewhere"}))) == [
        "variable datasource: starts with apc-prometheus, which is not provisioned"
    ]


def test_panels_of_collapsed_rows_are_looked_at(board: dict[str, Any]) -> None:
    row = next(p for p in board["panels"] if p["type"] == "row")
    row["panels"] = [panel(board) | {"id": 0}]
    assert faults(board) == ["panel id 0"]


def test_promql() -> None:
    assert [*windows('rate(a{b="[1s]"}[5m]) + max_over_time(c[1s]) / increase(d[1h:1m])')] == ["5m", "1h"]
    assert [seconds(text) for text in ("90s", "1h30m", "$__range", "5")] == [90, 5400, None, None]
    assert [*summed_shares("sum by (a) (b / (c_ratio > 0)) + sum(d) + e_rate")] == ["c_ratio"]
    assert [*matched('a{b=~"$c",d="$c",e!="${c}"}', "c")] == ["=~", "=", "!="]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bad,) = CASES.glob("25*/panel_bad.json")
    assert main(["lint", str(OUT / "apc-oncall.json")]) == 0
    assert main(["lint", str(bad)]) == 1
    assert main(["lint", "--scrape-interval", "15", str(bad)]) == 1
    assert capsys.readouterr().out.count("panel 2: 1m < 2 x 60s") == 1
    exported = tmp_path / "exported.json"
    exported.write_text(json.dumps({"meta": {}, "dashboard": load(bad)}), encoding="utf-8")
    assert main(["lint", str(exported)]) == 1
    exported.write_text("[]", encoding="utf-8")
    assert main(["lint", str(exported)]) == 3
    assert main(["lint", str(tmp_path / "missing.json")]) == 3
    with pytest.raises(SystemExit, match="2"):
        main(["lint"])
