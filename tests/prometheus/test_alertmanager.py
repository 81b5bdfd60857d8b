"""Who hears of an alert: the routes and inhibitions name alerts that exist, and channels come from the environment."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.checks import ConfigError
from native.tools import ensure
from prometheus.receivers import HEADER, SETTINGS, TEMPLATE, main, render
from tests.conftest import NEWER, OLDER
from tests.generations import newer
from tests.prometheus.test_rules import ALERTS, OF_STACK

TEXT = TEMPLATE.read_text(encoding="utf-8")
CONFIG: dict[str, Any] = yaml.safe_load(TEXT)
PAGES = {name for name, alert in ALERTS.items() if alert.source["labels"]["severity"] == "page"}
KEY = "0123456789abcdef0123456789abcdef"


def matched(matchers: list[str]) -> set[str]:
    """Return the alerts that matchers on alertname select; other labels are passed over."""
    found = set(ALERTS)
    for matcher in matchers:
        name, operator, value = re.fullmatch(r'(\w+)(=~?)"(.*)"', matcher).groups()  # type: ignore[union-attr]
        if name == "alertname":
            found &= {alert for alert in ALERTS if (re.fullmatch(value, alert) if operator == "=~" else alert == value)}
    return found


def secrets(folder: Path) -> dict[str, str]:
    contents = {
        "APC_SLACK_URL_FILE": "https://hooks.slack.com/services/T0/B0/x",
        "APC_PAGERDUTY_KEY_FILE": KEY,
        "APC_WEBHOOK_URL_FILE": "http://10.0.0.1/alerts?token=abc",
    }
    for name, content in contents.items():
        (folder / name.lower()).write_text(f"{content}\n", encoding="utf-8")
    return {name: str(folder / name.lower()) for name in contents}


def receivers(text: str) -> dict[str, dict[str, Any]]:
    return {receiver.pop("name"): receiver for receiver in yaml.safe_load(text)["receivers"]}


@pytest.fixture(scope="module")
def amtools() -> dict[str, str]:
    """Return the amtool of either generation."""
    return {OLDER: ensure("alertmanager")["amtool"][0], NEWER: newer("amtool")}


def accept(tool: str, text: str, folder: Path) -> None:
    path = folder / "alertmanager.yml"
    path.write_text(text, encoding="utf-8")
    checked = subprocess.run([tool, "check-config", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("generation", [OLDER, NEWER])
def test_it_is_valid_as_it_stands_and_tells_nobody(generation: str, amtools: dict[str, str], tmp_path: Path) -> None:
    accept(amtools[generation], TEXT, tmp_path)
    assert receivers(TEXT) == {"page": {}, "ticket": {}}
    rendered = render(TEXT, {})
    assert yaml.safe_load(rendered) == CONFIG
    accept(amtools[generation], rendered, tmp_path)


def test_pages_and_tickets_part_and_come_by_target() -> None:
    route = CONFIG["route"]
    assert route["receiver"] == "ticket"
    assert [(child["matchers"], child["receiver"]) for child in route["routes"]] == [(['severity="page"'], "page")]
    assert route["group_by"] == ["target"]


def test_every_name_in_an_inhibition_is_an_alert() -> None:
    for rule in CONFIG["inhibit_rules"]:
        for matcher in [*rule["source_matchers"], *rule["target_matchers"]]:
            if matcher.startswith("alertname"):
                for name in re.fullmatch(r'alertname=~?"(.*)"', matcher)[1].split("|"):  # type: ignore[index]
                    assert [alert for alert in ALERTS if re.fullmatch(name, alert)], name


def test_what_an_engine_that_is_down_silences() -> None:
    by_source = {
        source: matched(rule["target_matchers"])
        for rule in CONFIG["inhibit_rules"]
        for source in matched(rule["source_matchers"])
    }
    assert by_source["ApcEngineDown"] == set(ALERTS) - OF_STACK - {"ApcEngineDown"}
    assert by_source["ApcEngineStalled"] >= {"ApcHitRateZero", "ApcProbeFailing", "ApcTtftRegression"}
    # With its exporter gone an engine's figures say nothing; with its probe gone the canary's.
    assert by_source["ApcExporterDown"] | by_source["ApcProbeDown"] == set(ALERTS) - OF_STACK
    assert not by_source["ApcExporterDown"] & by_source["ApcProbeDown"]
    assert all(source not in targets for source, targets in by_source.items())


def test_only_alerts_without_a_target_silence_those_of_all_targets() -> None:
    for rule in CONFIG["inhibit_rules"]:
        assert (rule.get("equal") == ["target"]) != (matched(rule["source_matchers"]) <= OF_STACK)
        if "equal" not in rule:  # one of several that is down is no reason
            assert 'state=~"all_down|absent"' in rule["source_matchers"]


def test_channels_from_the_environment(amtools: dict[str, str], tmp_path: Path) -> None:
    text = render(TEXT, {**secrets(tmp_path), "GRAFANA_URL": "https://grafana.example/apc/"})
    found = receivers(text)
    assert set(found["page"]) == {"slack_configs", "pagerduty_configs", "webhook_configs"}
    assert set(found["ticket"]) == {"slack_configs", "webhook_configs"}
    webhook = {"url_file": str(tmp_path / "apc_webhook_url_file"), "send_resolved": True}
    assert found["page"]["webhook_configs"] == found["ticket"]["webhook_configs"] == [webhook]
    (slack,) = found["ticket"]["slack_configs"]
    assert slack["api_url_file"] == str(tmp_path / "apc_slack_url_file")
    assert "<https://grafana.example/apc{{ .Annotations.runbook_url }}|Runbook>" in slack["text"]
    (pagerduty,) = found["page"]["pagerduty_configs"]
    assert pagerduty["routing_key_file"] == str(tmp_path / "apc_pagerduty_key_file")
    assert not any(secret in text for secret in ("hooks.slack.com", KEY, "token=abc"))
    assert {**yaml.safe_load(text), "receivers": []} == {**CONFIG, "receivers": []}
    accept(amtools[NEWER], text, tmp_path)


def test_an_old_alertmanager_reads_no_address_from_a_file(amtools: dict[str, str], tmp_path: Path) -> None:
    environ = {"APC_WEBHOOK_URL_FILE": secrets(tmp_path)["APC_WEBHOOK_URL_FILE"]}
    text = render(TEXT, environ, version=(0, 25))
    wanted = [{"url": "http://10.0.0.1/alerts?token=abc", "send_resolved": True}]
    assert receivers(text)["page"]["webhook_configs"] == wanted
    for tool in amtools.values():
        accept(tool, text, tmp_path)


def test_files_may_lie_elsewhere_for_alertmanager(tmp_path: Path) -> None:
    found = receivers(render(TEXT, secrets(tmp_path), mounted="/run/secrets"))
    assert found["page"]["pagerduty_configs"][0]["routing_key_file"] == "/run/secrets/APC_PAGERDUTY_KEY_FILE"
    assert found["ticket"]["webhook_configs"][0]["url_file"] == "/run/secrets/APC_WEBHOOK_URL_FILE"


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n", encoding="utf-8")
    environ = {"APC_SLACK_URL_FILE": "/no/such/file", "APC_WEBHOOK_URL_FILE": str(empty), "GRAFANA_URL": "grafana"}
    with pytest.raises(ConfigError) as raised:
        render(TEXT, environ)
    assert [fault.split(":")[0] for fault in raised.value.faults] == [
        "GRAFANA_URL",
        "APC_SLACK_URL_FILE",
        "APC_WEBHOOK_URL_FILE",
    ]


def test_settings_say_what_they_are() -> None:
    assert all(setting.meaning for setting in SETTINGS)


def test_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.name, raising=False)
    assert main() == 0
    assert capsys.readouterr().out.startswith(HEADER)
    monkeypatch.setenv("APC_SLACK_URL_FILE", "/no/such/file")
    assert main() == 2
    assert "APC_SLACK_URL_FILE" in capsys.readouterr().err
