"""A Grafana of the machine's gets the stack's provisioning, the settings of compose.yaml and a password of its own."""

import stat
from pathlib import Path

import yaml

from native import grafana
from native.settings import ROOT


def test_it_is_as_closed_as_the_one_in_docker() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    shared = compose["services"]["grafana"]["environment"]
    found = grafana.environment()
    image = "GF_SECURITY_ADMIN_PASSWORD__FILE"
    own = {image, "GF_SECURITY_COOKIE_SECURE", "PROMETHEUS_URL", "DASHBOARDS_PATH"}
    assert {name: found[name] for name in shared if name not in own} == {
        name: value for name, value in shared.items() if name not in own
    }
    assert found["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert found["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert set(shared) - {image} <= set(found)


def test_its_password_is_read_as_a_grafana_without_the_images_start_script_reads_it() -> None:
    found = grafana.environment()["GF_SECURITY_ADMIN_PASSWORD"]
    assert found.format_map({"run": "/r"}) == f"$__file{{/r/grafana/{grafana.PASSWORD}}}"
    assert not [name for name in grafana.environment() if name.endswith("__FILE")]


def test_it_is_provisioned_and_its_password_is_random_private_and_stays(tmp_path: Path) -> None:
    grafana.write(tmp_path)
    for kind in ("datasources", "dashboards"):
        source = ROOT / "dashboards" / "provisioning" / f"{kind}.yml"
        assert (tmp_path / "provisioning" / kind / "apc.yml").read_text() == source.read_text()
    password = tmp_path / grafana.PASSWORD
    first = password.read_text()
    assert len(first) == 24
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    grafana.write(tmp_path)
    assert password.read_text() == first
    grafana.write(tmp_path / "other")
    assert (tmp_path / "other" / grafana.PASSWORD).read_text() != first
