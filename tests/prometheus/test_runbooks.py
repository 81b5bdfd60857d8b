"""Each alert has a runbook that can be followed at night: short, with commands that run and names that exist."""

import re
import subprocess
from enum import StrEnum
from pathlib import Path

import pytest
import yaml

from exporter.scrape import Reason
from probes.outcome import ErrorClass
from probes.verdict import Code
from tests.conftest import Accepted
from tests.prometheus.mutants import names
from tests.prometheus.test_rules import ALERTS, FOREIGN, PROMETHEUS, RECORDED, exported

RUNBOOKS = {path.stem: path for path in (PROMETHEUS / "runbooks").glob("*.md")}
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
# Nothing is wrong, or nothing is known.
NO_SECTION = {Code.HEALTHY, Code.UNKNOWN}
LONGEST = 75  # lines
QUERY = re.compile(r"--data-urlencode 'query=([^']*)'")
CODE = re.compile(r"```sh\n(.*?)```", re.DOTALL)
PROMPTS = ".venv/bin/python -m probes doctor --prompt A.txt --prompt B.txt"  # files of this machine
REASONS = {"ApcMetricsMissing": Reason, "ApcProbeFailing": ErrorClass}
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


@pytest.mark.parametrize(("alert", "reasons"), REASONS.items())
def test_each_reason_in_the_label_has_a_mitigation(alert: str, reasons: type[StrEnum]) -> None:
    _, _, mitigation = text(alert).partition("## Mitigation")
    assert [reason for reason in reasons if f"`{reason}`" not in mitigation] == []


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
    # As typed they serve the stack in Docker and the one without: `native` and the environment's settings do not.
    programs = re.compile(r"curl -s|\.venv/bin/python -m host (doctor|status|logs)\b|make rules$|" + re.escape(PROMPTS))
    commands = [line for alert in ALERTS for block in CODE.findall(text(alert)) for line in block.splitlines()]
    assert [line for line in commands if not programs.match(line)] == []
    parsed = subprocess.run(["bash", "-n"], input="\n".join(commands), capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
