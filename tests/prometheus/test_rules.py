"""The rules load, pass promtool's tests, and those tests would notice if anything in them were gone."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.metrics import FAMILIES as EXPORTED
from native.settings import LONGEST_INTERVAL_SECONDS
from probes.metrics import FAMILIES as PROBED
from tests.conftest import Accepted, Promtool
from tests.inputs import TESTS, cases, expectation
from tests.prometheus.mutants import NAME, QUOTED, Rule, about, load, load_cases, minutes, names, noticed, renamed

PROMETHEUS = TESTS.parent / "prometheus"
FILES = sorted((PROMETHEUS / "tests").glob("*.yml"))
RULES = load(PROMETHEUS / "rules")
CASES = load_cases(PROMETHEUS / "tests")
ALERTS = {rule.name: rule for rule in RULES if "alert" in rule.source}
RECORDED = {rule.name for rule in RULES if "record" in rule.source}
# Of Prometheus itself.
FOREIGN = {"up", "ALERTS", "prometheus_rule_evaluation_failures_total"}
# About the stack, and so without a target.
OF_STACK = {"ApcExporterDown", "ApcProbeDown", "ApcRuleEvaluationFailing"}
VERDICT = 'range query (printf "target:apc_verdict:current{target=%q}" $labels.target) | sortByLabel "verdict"'
WINDOW = re.compile(r"\[(\w+)(?::\w*)?\]")
SHARE = re.compile(r"\b(?:apc_\w+_ratio|[a-z]+:apc_\w+:(?:ratio|max|avg|quantile)\w*)\b")
SUM = re.compile(r"\bsum(?:\s+by\s*\([^)]*\))?\s*\(")


def exported() -> set[str]:
    """Return the names of all series that exporter and probe have."""
    families = {family.name for family in (*EXPORTED, *PROBED)}
    return families | {f"{name}_{part}" for name in families for part in ("bucket", "sum", "count")}


def test_rules_are_accepted(accepted: Accepted) -> None:
    accepted("check", "rules", *map(str, sorted((PROMETHEUS / "rules").glob("*.yml"))))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_promtool_tests_pass(path: Path, accepted: Accepted) -> None:
    accepted("test", "rules", str(path))


@pytest.mark.parametrize("case", cases("promtool"), ids=lambda case: case.name)
def test_promtool_tests_of_field_reports_pass(case: Path, accepted: Accepted) -> None:
    accepted("test", "rules", str(case / expectation(case)["promtool"].split()[0]))


def test_no_name_can_be_lost_unnoticed(promtool: Promtool, tmp_path: Path) -> None:
    def survives(number: int, name: str) -> bool:
        changed = renamed(RULES, name)
        assert changed != RULES, name
        return not noticed(RULES, changed, CASES, passes, tmp_path / str(number))

    def passes(path: Path) -> bool:
        text = "".join(part.read_text(encoding="utf-8") for part in sorted(path.parent.iterdir()))
        if text not in known:
            known[text] = promtool("test", "rules", str(path)).returncode == 0
        return known[text]

    known: dict[str, bool] = {}  # many names are noticed in the same part of a test
    lost = sorted(RECORDED | {name for rule in RULES for name in rule.uses})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        survived = [name for name, alive in zip(lost, pool.map(survives, range(len(lost)), lost), strict=True) if alive]
    assert survived == []


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not_yet(alert: str) -> None:
    told = [assertion for case in CASES for kind, assertion in case.pieces() if about(kind, assertion) == {alert}]
    assert any(assertion.get("exp_alerts") for assertion in told)
    assert not all(assertion.get("exp_alerts") or assertion.get("exp_samples") for assertion in told)


def test_each_alert_of_a_test_exists() -> None:
    told = {name for case in CASES for kind, assertion in case.pieces() for name in about(kind, assertion)}
    assert {name for name in told if name.startswith("Apc")} == set(ALERTS)


def test_each_file_of_tests_evaluates_the_groups_in_order() -> None:
    groups = list(dict.fromkeys(rule.group for rule in RULES))
    for case in CASES:
        assert case.frame["group_eval_order"] == groups, case.file


def test_each_name_is_exported_or_recorded() -> None:
    known = exported() | RECORDED | FOREIGN
    assert {name for rule in RULES for name in rule.reads} <= known
    series = {NAME.match(entry["series"]) for case in CASES for entry in case.body["input_series"]}
    assert {found[0] for found in series if found} <= exported() | FOREIGN
    assert None not in series


def test_each_record_says_its_level_metric_and_operation() -> None:
    form = re.compile(r"(fleet|model|target|engine):apc_[a-z_]+:[a-z0-9_]+")
    assert [name for name in RECORDED if not form.fullmatch(name)] == []


def test_thresholds_are_single_numbers_and_compared_with() -> None:
    thresholds = {rule.name: rule for rule in RULES if rule.name.endswith(":threshold")}
    assert all(re.fullmatch(r"vector\([\d.]+\)", rule.source["expr"]) for rule in thresholds.values())
    assert set(thresholds) <= {name for rule in RULES for name in rule.uses}


def test_windows_hold_four_scrapes_and_two_at_the_longest_interval() -> None:
    interval = re.search(r"scrape_interval: (\w+)", (PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    assert interval
    shortest = max(4 * minutes(interval[1]), 2 * minutes(f"{LONGEST_INTERVAL_SECONDS}s"))
    for rule in RULES:
        for window in WINDOW.findall(rule.source["expr"]):
            assert minutes(window.replace("1d", "24h").replace("1w", "168h")) >= shortest, rule.name


def test_no_share_is_summed() -> None:
    for rule in RULES:
        expr = QUOTED.sub('""', rule.source["expr"])
        for found in SUM.finditer(expr):
            inner = inside(expr, found.end())
            assert not SHARE.search(inner), f"{rule.name}: {inner}"


def inside(expr: str, start: int) -> str:
    """Return what stands between a parenthesis that opened before `start` and its end."""
    depth, end = 1, start
    while depth:
        depth += {"(": 1, ")": -1}.get(expr[end], 0)
        end += 1
    return expr[start : end - 1]


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert.name)
def test_annotations(alert: Rule) -> None:
    assert alert.source["labels"]["severity"] in {"page", "ticket"}
    assert set(alert.annotations) == {"summary", "description", "runbook_url", "dashboard"}
    assert alert.annotations["runbook_url"] == f"/d/runbook-{alert.name}"
    if alert.name in OF_STACK:
        assert alert.annotations["dashboard"] == "/d/apc-oncall"
    else:
        assert alert.annotations["dashboard"] == "/d/apc-oncall?var-target={{ urlquery $labels.target }}"
        assert VERDICT in " ".join(alert.annotations["description"].split())


def test_names_in_a_label_are_no_metrics() -> None:
    assert names('apc_verdict{verdict="apc_disabled"} and on (target) up{job="x"} > fleet:apc_a:threshold') == {
        "apc_verdict",
        "up",
        "fleet:apc_a:threshold",
    }
