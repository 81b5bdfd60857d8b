# ruff: noqa: INP001 - the folder is configuration, and this its only module
"""alertmanager.yml and the environment -> the configuration that Alertmanager starts with.

Alertmanager expands no environment variables. So a channel is added here for each file of a secret that the
environment names. `python -m prometheus.receivers` prints the result; who starts Alertmanager calls `render`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from exporter.checks import Checks, ConfigError, Setting, values

SLACK: Final = Setting("APC_SLACK_URL_FILE", "", "file with the address of a Slack webhook, for pages and tickets")
PAGERDUTY: Final = Setting("APC_PAGERDUTY_KEY_FILE", "", "file with a PagerDuty routing key (Events v2), for pages")
WEBHOOK: Final = Setting("APC_WEBHOOK_URL_FILE", "", "file with any other webhook's address, for pages and tickets")
GRAFANA: Final = Setting("GRAFANA_URL", "http://127.0.0.1:3300", "Grafana as readers of a message reach it")
CHANNELS: Final = (SLACK, PAGERDUTY, WEBHOOK)
SETTINGS: Final = (*CHANNELS, GRAFANA)

TEMPLATE: Final = Path(__file__).with_name("alertmanager.yml")
HEADER: Final = "# Written from prometheus/alertmanager.yml at the start; edits are lost at the next one.\n"
URL_FILE_SINCE: Final = (0, 26)  # before, a webhook's address stands in the configuration itself

Channel = dict[str, Any]


def render(
    text: str, environ: Mapping[str, str], *, version: tuple[int, ...] = URL_FILE_SINCE, mounted: str = ""
) -> str:
    """Return the configuration with the channels that the environment names; raises ConfigError with every fault.

    `version` is Alertmanager's; for one before 0.26 a webhook's address is in the result, so keep that private.
    `mounted` is the folder in which Alertmanager finds them by the settings' names, where they are not what it reads.
    """
    checks = Checks()
    value = values(SETTINGS, environ)
    grafana = checks.url(GRAFANA.name, value[GRAFANA.name])
    files = {setting: _secret(setting, value[setting.name], checks) for setting in CHANNELS}
    checks.done()
    places = {setting: f"{mounted}/{setting.name}" if mounted else str(path) for setting, path in files.items()}
    config = yaml.safe_load(text)
    receivers = {receiver["name"]: receiver for receiver in config["receivers"]}
    if files[SLACK]:
        for receiver in receivers.values():
            receiver["slack_configs"] = [_slack(places[SLACK], grafana)]
    if files[PAGERDUTY]:
        receivers["page"]["pagerduty_configs"] = [_pagerduty(places[PAGERDUTY], grafana)]
    if path := files[WEBHOOK]:
        for receiver in receivers.values():
            receiver["webhook_configs"] = [_webhook(path, places[WEBHOOK], version)]
    return HEADER + yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=1000)


def _secret(setting: Setting, text: str, checks: Checks) -> Path | None:
    """Return the path of a file that can be read and holds something; what it holds is never repeated."""
    if not text:
        return None
    path = Path(text).absolute()
    try:
        if not path.read_text(encoding="utf-8").strip():
            checks.faults.append(f"{setting.name}: {text} is empty; it has to be a {setting.meaning}")
    except (OSError, UnicodeDecodeError) as error:
        checks.faults.append(f"{setting.name}: {text} cannot be read: {getattr(error, 'strerror', None) or error}")
    return path


def _slack(path: str, grafana: str) -> Channel:
    return {
        "api_url_file": path,
        "send_resolved": True,
        "title": "{{ if eq .Status `firing` }}{{ .CommonLabels.severity | toUpper }}{{ else }}resolved{{ end }}"
        "{{ with .GroupLabels.target }} {{ . }}{{ end }}",
        "text": "{{ range .Alerts }}*{{ .Annotations.summary }}*{{ if eq .Status `resolved` }} (resolved){{ end }}\n"
        "{{ .Annotations.description }}\n"
        f"<{grafana}{{{{ .Annotations.runbook_url }}}}|Runbook> "
        f"<{grafana}{{{{ .Annotations.dashboard }}}}|Dashboard>\n{{{{ end }}}}",
    }


def _pagerduty(path: str, grafana: str) -> Channel:
    first = "{{ with index .Alerts 0 }}" + grafana + "{{ .Annotations.%s }}{{ end }}"
    return {
        "routing_key_file": path,
        "send_resolved": True,
        "severity": "critical",
        "description": "{{ range $n, $a := .Alerts }}{{ if $n }}; {{ end }}{{ $a.Annotations.summary }}{{ end }}",
        "details": {"what": "{{ range .Alerts }}{{ .Annotations.description }}\n{{ end }}"},
        "links": [
            {"href": first % "runbook_url", "text": "Runbook"},
            {"href": first % "dashboard", "text": "Dashboard"},
        ],
    }


def _webhook(path: Path, place: str, version: tuple[int, ...]) -> Channel:
    if version >= URL_FILE_SINCE:
        return {"url_file": place, "send_resolved": True}
    return {"url": path.read_text(encoding="utf-8").strip(), "send_resolved": True}


def main() -> int:
    """Print the configuration for this environment."""
    try:
        sys.stdout.write(render(TEMPLATE.read_text(encoding="utf-8"), os.environ))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
