"""The shipped compose.yaml against the rules, and the rules against the cases' bad files."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config import SETTINGS as EXPORTER
from host.services import PROJECT, SERVICES
from host.settings import SETTINGS
from native.settings import ROOT
from native.settings import SETTINGS as SHARED
from probes.config import SETTINGS as PROBE
from tests.host.compose_lint import lint
from tests.inputs import CASES, cases, expectation

TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
FILE: dict[str, Any] = yaml.safe_load(TEXT)
BAD = [case for case in cases("compose_lint") if (case / "compose_bad.yml").exists()]
VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}")
KEYS = re.compile(r".*_API_KEY")


def rendered(environ: dict[str, str]) -> dict[str, Any]:
    """Return the file with its variables filled in, as Compose does."""
    text = VARIABLE.sub(lambda match: environ.get(match[1]) or match[2] or "", TEXT)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _provisioned(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def test_ours_is_faultless() -> None:
    assert lint(TEXT) == []


def test_every_bad_file_is_there() -> None:
    assert [case.name[:2] for case in BAD] == ["59", "61", "63"]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_a_bad_file_is_rejected_for_its_reason(case: Path) -> None:
    found = lint((case / "compose_bad.yml").read_text(encoding="utf-8"))
    for wanted in expectation(case)["compose_lint"]["errors"]:
        assert [fault for fault in found if wanted in fault], (wanted, found)


def test_no_service_waits_for_a_model_to_load() -> None:
    [case] = CASES.glob("65-*")
    service = {"image": "x", "depends_on": {"vllm": {"condition": "service_healthy"}}}
    found = lint(yaml.safe_dump({"services": {"exporter": service, "vllm": {"image": "vllm/vllm-openai:v0.33.0"}}}))
    wanted = expectation(case)["compose_lint"]["must_not"]
    assert [fault for fault in found if wanted in fault]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"image": "grafana/grafana"}, "not pinned"),
        ({"image": "grafana/grafana:latest"}, "not pinned"),
        ({"ports": ["9390:9090"]}, "more than 127.0.0.1"),
        ({"ports": ["127.0.0.1:${P:-1}:${P:-1}"]}, "moves the inner port"),
        ({"volumes": ["./a:/a:z"]}, "can be written"),
        ({"volumes": [{"type": "bind", "source": "./a", "target": "/a"}]}, "without z"),
        ({"volumes": ["/var/run/docker.sock:/var/run/docker.sock:ro,z"]}, "command Docker"),
        ({"environment": ["VLLM_API_KEY=${VLLM_API_KEY}"]}, "docker inspect shows it"),
        ({"command": "--web.enable-lifecycle"}, "delete or reload"),
        ({"privileged": True}, "is privileged"),
        ({"read_only": False}, "may write its root"),
        ({"cap_drop": []}, "keeps capabilities"),
        ({"security_opt": []}, "may gain privileges"),
        ({"restart": "always"}, "not started again"),
        ({"logging": {}}, "fills the disk"),
        ({"command": ["--url", "http://127.0.0.1:8000"]}, "target localhost"),
    ],
)
def test_a_rule_sees_its_fault(change: dict[str, Any], wanted: str) -> None:
    good = dict(FILE["services"]["exporter"])
    assert lint(yaml.safe_dump({"services": {"exporter": good}})) == []
    found = lint(yaml.safe_dump({"services": {"exporter": good | change}}))
    assert [fault for fault in found if wanted in fault], found


def test_moving_ports_moves_no_link() -> None:
    [case] = CASES.glob("62-*")
    lines = (case / "env").read_text(encoding="utf-8").splitlines()
    wanted = expectation(case)["compose_render"]
    services = rendered(dict(line.split("=") for line in lines))["services"]
    for name in ("grafana", "prometheus"):
        [published] = services[name]["ports"]
        assert "->".join(published.rsplit(":", 1)) == wanted[name]
    [source] = _provisioned("dashboards/provisioning/datasources.yml")["datasources"]
    assert source["url"] == "$PROMETHEUS_URL"
    assert services["grafana"]["environment"]["PROMETHEUS_URL"] == wanted["datasource_url"]


def test_grafana_finds_its_dashboards_and_behind_tls_the_same_data_source() -> None:
    grafana = FILE["services"]["grafana"]
    [provider] = _provisioned("dashboards/provisioning/dashboards.yml")["providers"]
    assert provider["options"]["path"] == "$DASHBOARDS_PATH"
    path = grafana["environment"]["DASHBOARDS_PATH"]
    assert f"./dashboards/out:{path}:ro,z" in grafana["volumes"]
    plain, tls = (
        _provisioned(name)["datasources"][0]["uid"]
        for name in ("dashboards/provisioning/datasources.yml", "compose/examples/datasources.tls.yml")
    )
    assert plain == tls


def test_the_table_of_services_says_what_the_file_says() -> None:
    assert {service.name for service in SERVICES} == set(FILE["services"])
    assert FILE["name"] == PROJECT
    for service in SERVICES:
        entry = rendered({})["services"][service.name]
        assert entry.get("profiles", [""]) == [service.profile]
        assert service.image in FILE["services"][service.name]["image"]
        outer = [port.split(":")[1] for port in entry.get("ports", ())]
        assert outer == ([str(service.port.default)] if service.port else [])
        setting = service.port.setting if service.port else ""
        assert setting in str(FILE["services"][service.name].get("ports", ""))


def test_defaults_are_those_of_the_settings() -> None:
    known = {setting.name: setting.default for setting in (*SETTINGS, *SHARED)}
    for name, default in VARIABLE.findall(TEXT):
        if known.get(name) and name not in {"VLLM_URL", "APC_RUN_DIR", "VLLM_MODEL_PATH"}:  # as seen from a container
            assert default == known[name], name
    assert {name for name, _ in VARIABLE.findall(TEXT)} >= {s.name for s in SETTINGS if s.name.endswith("_IMAGE")}


@pytest.mark.parametrize("service", ["exporter", "probe"])
def test_every_setting_gets_into_its_container(service: str) -> None:
    own, other = {"exporter": (EXPORTER, ()), "probe": (PROBE, EXPORTER)}[service]
    settings = {setting.name for setting in own}
    settings |= {s.name for s in other if not s.name.startswith("APC_EXPORTER_")}
    wanted = {name for name in settings if not KEYS.fullmatch(name) and not name.endswith(("_HOST", "_PORT"))}
    assert wanted <= set(FILE["services"][service]["environment"])


def test_every_module_of_its_packages_gets_into_the_image() -> None:
    let_in = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for package in ("exporter", "probes", "demo"):
        for path in (ROOT / package).rglob("*.py"):
            assert f"!{path.parent.relative_to(ROOT)}/*.py" in let_in, path
