"""The lint: the cases' bad dashboards are rejected, ours are not, and each rule finds what it is for.

What it makes of queries is in `test_query_faults.py`.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dashboards.__main__ import main
from dashboards.lint import Surroundings, lint, surroundings
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


def variable(board: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(v for v in board["templating"]["list"] if v["name"] == name)
    return found


def faults(board: dict[str, Any]) -> list[str]:
    return [fault.partition(": ")[2] or fault for fault in lint(board, AROUND)]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"type": "graph"}, "graph is an Angular panel, which Grafana 12 does not show"),
        ({"type": "someones-clock-panel"}, "someones-clock-panel needs a plugin"),
        ({"fieldConfig": {"defaults": {}, "overrides": []}}, "no unit"),
        ({"gridPos": {"x": 20, "y": 100, "w": 8, "h": 4}}, "beyond column 24"),
        ({"gridPos": {"x": 0, "y": 1, "w": 4, "h": 4}}, "on panel 2"),
        ({"datasource": {"type": "prometheus", "uid": "${other}"}}, "datasource ${other}"),
        ({"datasource": {"uid": ["apc-prometheus"]}}, 'datasource uid ["apc-prometheus"] not provisioned'),
        ({"datasource": "[[other:raw]]"}, "datasource [[other:raw]]"),
        ({"datasource": "-- Mixed --", "targets": [{"expr": "1"}]}, "no datasource"),
        ({"datasource": "${DS_PROMETHEUS}", "targets": []}, "datasource ${DS_PROMETHEUS}"),
        ({"id": None}, "panel id null"),
        ({"id": "9"}, 'panel id "9" is no whole number'),
        ({"id": -1}, "panel id -1"),
        ({"gridPos": {"x": "0", "y": 100, "w": 8, "h": 4.5}}, 'gridPos x "0", h 4.5 is no whole number'),
        ({"gridPos": {"x": -1, "y": 100, "w": 8, "h": 4}}, "beyond column 0"),
        ({"repeat": "nothing"}, "$nothing is no variable here"),
        ({"targets": [None]}, "target null is no object"),
    ],
)
def test_panels(board: dict[str, Any], change: dict[str, Any], fault: str) -> None:
    panel(board).update(change)
    assert faults(board) == [fault]


@pytest.mark.parametrize(
    "change",
    [
        {"gridPos": {"y": 100, "w": 8.0, "h": 4}},
        {"libraryPanel": {"uid": "elsewhere"}, "type": None, "fieldConfig": None},
        {"datasource": "[[datasource]]"},
        {"datasource": {"uid": "${datasource:text}"}},
        {"targets": [{"datasource": {"type": "__expr__", "uid": "__expr__"}, "expression": "$A * 2", "expr": "$A"}]},
        {"targets": [{"datasource": "__expr__", "expression": "$A * 2"}]},
        {"repeat": "target"},
    ],
)
def test_sound_panels(board: dict[str, Any], change: dict[str, Any]) -> None:
    panel(board).update(change)
    assert faults(board) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"uid": ""}, "dashboard uid null"),
        ({"uid": "a" * 41}, f'dashboard uid "{"a" * 39}: Grafana takes up to 40 letters, digits, - and _'),
        ({"uid": "a/b"}, 'dashboard uid "a/b": Grafana takes up to 40 letters, digits, - and _'),
        ({"panels": 1}, "panels: 1 is no list"),
        ({"panels": [{"id": 1, "type": "text", "targets": "up"}]}, 'targets: "up" is no list'),
        ({"rows": [{"panels": []}]}, "dashboard rows are not shown from schemaVersion 16 on"),
        ({"spec": {"elements": {}}}, "dashboard in schema v2, which Grafana does not provision from files"),
        ({"annotations": {"list": [{"name": "a"}]}}, "annotation a: no datasource"),
    ],
)
def test_the_whole(board: dict[str, Any], change: dict[str, Any], fault: str) -> None:
    assert lint(board | change, AROUND) == [fault]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"includeAll": False}, "includeAll false"),
        ({"allValue": None}, "allValue is not .*"),
        ({"refresh": 1}, "not read anew with the time range"),
        ({"current": {"value": ["m"]}}, "All is not the default"),
        ({"query": "label_values(up, model_name)"}, "label_values without a product metric"),
        ({"query": "label_values( model_name )"}, "label_values without a product metric"),
        ({"query": 'label_values(up{job="vllm:8000"}, model_name)'}, "label_values without a product metric"),
        ({"query": "query_result(up)"}, "query_result without a product metric"),
        ({"query": "label_names()"}, "label_names without a product metric"),
        ({"query": "", "definition": "label_values(model_name)"}, "label_values without a product metric"),
        ({"query": {"label": "model_name", "metric": "up"}}, "label_values without a product metric"),
        ({"query": 'label_values(apc_engine_info{target="$target"}, model_name)'}, "variable model chained on target"),
        ({"query": 'label_values(apc_engine_info{target=~"[[target]]"}, model_name)'}, "model chained on target"),
        ({"query": 'label_values(apc_engine_info{a="$b"}, model_name)'}, "$b is no variable here"),
        ({"datasource": None}, "no datasource"),
    ],
)
def test_variables(board: dict[str, Any], change: dict[str, Any], fault: str) -> None:
    variable(board, "model").update(change)
    (found,) = lint(board, AROUND)
    assert fault in found


@pytest.mark.parametrize(
    "query",
    [
        "label_values(ray_vllm_num_requests_running, model_name)",
        'label_values({__name__=~"vllm:.*"}, model_name)',
        "label_values(target:apc_hit:ratio_rate5m, model_name)",
        'label_values(apc_engine_info{engine=~"$engine"}, model_name)',
        "query_result(apc_engine_info)",
        "metrics(vllm)",
        {"label": "model_name", "metric": "apc_engine_info"},
    ],
)
def test_sound_variables(board: dict[str, Any], query: Any) -> None:
    variable(board, "model").update({"query": query})
    assert faults(board) == []


def test_what_comes_and_goes_may_be_chained_on_what_stays(board: dict[str, Any]) -> None:
    variable(board, "target")["query"] = 'label_values(apc_engine_info{model_name=~"$model"}, target)'
    assert faults(board) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["apc-prometheus", "Prometheus"], []),
        (["apc-prometheus", 1], ["variable datasource: starts with 1, which is not provisioned"]),
        (None, ["variable datasource: starts with None, which is not provisioned"]),
    ],
)
def test_what_a_source_variable_starts_with(board: dict[str, Any], value: Any, expected: list[str]) -> None:
    variable(board, "datasource")["current"] = {"value": value}
    assert lint(board, AROUND) == expected


@pytest.mark.parametrize("kind", ["adhoc", "groupby"])
def test_sources_of_filters(board: dict[str, Any], kind: str) -> None:
    board["templating"]["list"].append({"name": "f", "type": kind, "datasource": "${DS_PROMETHEUS}"})
    assert lint(board, AROUND) == ["variable f: datasource ${DS_PROMETHEUS}"]


@pytest.mark.parametrize(("several", "expected"), [({}, 0), ({"includeAll": True}, 1), ({"multi": True}, 1)])
def test_several_values_of_any_variable(board: dict[str, Any], several: dict[str, bool], expected: int) -> None:
    board["templating"]["list"].append({"name": "arm", "type": "custom", "query": "a,b", **several})
    panel(board)["targets"][0]["expr"] = 'apc_canary_hit_ratio{arm="$arm"}'
    assert faults(board) == ["arm used with = instead of =~"][:expected]


def test_rows_of_old() -> None:
    old = {"id": None, "type": "graph", "datasource": "${DS_PROMETHEUS}", "targets": [{"expr": "rate(a[$__interval])"}]}
    assert lint({"uid": "x", "schemaVersion": 12, "rows": [{"panels": [old]}, None]}, AROUND) == [
        "row null is no object",
        "panel id null",
        "panel null: datasource ${DS_PROMETHEUS}",
        "panel null: $__interval in rate; take $__rate_interval",
        "panel null: graph is an Angular panel, which Grafana 12 does not show",
    ]


@pytest.mark.parametrize("key", ["expr", "target"])
def test_both_queries_of_an_annotation(board: dict[str, Any], key: str) -> None:
    mark = next(a for a in board["annotations"]["list"] if "target" in a)
    mark[key] = "changes(up[30s])" if key == "expr" else {"expr": "changes(up[30s])"}
    assert faults(board) == ["30s < 2 x 60s"]


def test_a_source_variable_has_to_start_with_a_source_that_is_there(board: dict[str, Any]) -> None:
    assert lint(board, Surroundings(frozenset({"elsewhere"}))) == [
        "variable datasource: starts with apc-prometheus, which is not provisioned"
    ]


def test_panels_of_collapsed_rows_are_looked_at(board: dict[str, Any]) -> None:
    row = next(p for p in board["panels"] if p["type"] == "row")
    row["panels"] = [panel(board) | {"id": 0}]
    assert faults(board) == ["panel id 0"]
    row["panels"] = [panel(board) | {"id": number, "gridPos": {"w": 8, "h": 8}} for number in (901, 902)]
    assert lint(board, AROUND) == ["panel 902: on panel 901"]


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
    exported.write_text("[" * 100_000, encoding="utf-8")
    assert main(["lint", str(exported)]) == 3
    exported.write_text('{"uid": "\\ud800"}', encoding="utf-8")
    assert main(["lint", str(exported)]) == 1
    with pytest.raises(SystemExit, match="2"):
        main(["lint"])
