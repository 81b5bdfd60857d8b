"""Each alert has a runbook that can be followed at night: short, with commands that run and names that exist."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from probes.verdict import Code
from tests.conftest import Accepted
from tests.inputs import TESTS
from tests.prometheus.mutants import names
from tests.prometheus.test_rules import ALERTS, FOREIGN, PROMETHEUS, RECORDED, exported

RUNBOOKS = {path.stem: path for path in (PROMETHEUS / "runbooks").glob("*.md")}
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
# Nothing is wrong, or nothing is known.
NO_SECTION = {Code.HEALTHY, Code.UNKNOWN}
LONGEST = 75  # lines
QUERY = re.compile(r"--data-urlencode 'query=([^']*)'")
CODE = re.compile(r"```sh\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\[(\w+)\]\((\w+)\.md\)")


def text(alert: str) -> str:
    return RUNBOOKS[alert].read_text(encoding="utf-8")


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    assert set(RUNBOOKS) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_form(alert: str) -> None:
    content = text(alert)
    assert content.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.*)$", content, re.MULTILINE) == SECTIONS
    assert len(content.splitlines()) <= LONGEST
    assert CODE.search(content)
    assert all(shown == target and target in ALERTS for shown, target in LINK.findall(content))


def test_each_verdict_has_a_section_and_each_section_of_a_verdict_is_one() -> None:
    sections = {name for alert in ALERTS for name in re.findall(r"^### (.*)$", text(alert), re.MULTILINE)}
    assert sections == set(Code) - NO_SECTION


def test_names_exist() -> None:
    known = exported() | RECORDED | FOREIGN
    for alert in ALERTS:
        for name in re.findall(r"\b(?:[a-z]+:)?apc_[a-z0-9_]+(?::\w+)?", text(alert)):
            assert name in known | set(Code) or any(other.startswith(name) for other in known), f"{alert}: {name}"


def test_queries_are_queries(accepted: Accepted, tmp_path: Path) -> None:
    queries = [query for alert in ALERTS for query in QUERY.findall(text(alert))]
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    accepted("check", "rules", str(path))
    assert {name for query in queries for name in names(query)} <= exported() | RECORDED


def test_commands_are_commands() -> None:
    programs = re.compile(r"curl -s|\.venv/bin/python -m (native|exporter|probes)\b|\.tools/\S+/promtool ")
    commands = [line for alert in ALERTS for block in CODE.findall(text(alert)) for line in block.splitlines()]
    assert [line for line in commands if not programs.match(line)] == []
    parsed = subprocess.run(["bash", "-n"], input="\n".join(commands), capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    assert all((TESTS.parent / path).exists() for path in ("native", "exporter", "probes"))
