import os
from pathlib import Path

import pytest

from host import settings
from native import envfile
from native.errors import SettingsError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"APC_ENV_FILE": str(tmp_path / "env"), "APC_RUN_DIR": str(tmp_path / "run")}


def faults(environ: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as caught:
        settings.read(environ)
    assert caught.value.status == 2
    return str(caught.value)


def test_without_any_setting_everything_but_the_profiles_runs(environ: dict[str, str]) -> None:
    found = settings.read(environ)
    names = [place.service.name for place in found.services]
    assert names == ["exporter", "probe", "prometheus", "alertmanager", "grafana"]
    assert found.values["VLLM_URL"] == "http://localhost:8000"
    assert found.project.name == "apc-observability"
    assert found.new_password
    assert not settings.read(environ).new_password


def test_the_environment_goes_before_the_file_and_a_blank_one_does_not(environ: dict[str, str]) -> None:
    Path(environ["APC_ENV_FILE"]).write_text("VLLM_URL=http://gpu-1:8000\nGRAFANA_PORT=3400\nPROMETHEUS_PORT=1234\n")
    found = settings.read(environ | {"GRAFANA_PORT": " ", "PROMETHEUS_PORT": "9490"})
    assert found.values["VLLM_URL"] == "http://gpu-1:8000"
    assert {p.service.name: p.port for p in found.services if p.service.name in {"grafana", "prometheus"}} == {
        "grafana": 3400,
        "prometheus": 9490,
    }


def test_a_profile_brings_its_engine_and_its_address(environ: dict[str, str]) -> None:
    found = settings.read(environ | {"COMPOSE_PROFILES": "demo", "APC_WITHOUT": "grafana, probe"})
    names = [place.service.name for place in found.services]
    assert names == ["demo-engine", "demo-traffic", "exporter", "prometheus", "alertmanager"]
    assert found.values["VLLM_URL"] == settings.IN_STACK
    found = settings.read(environ | {"COMPOSE_PROFILES": "demo", "VLLM_URL": "http://gpu-1:8000"})
    assert found.values["VLLM_URL"] == "http://gpu-1:8000"


def test_the_engine_profile_wants_a_model(environ: dict[str, str], tmp_path: Path) -> None:
    told = faults(environ | {"COMPOSE_PROFILES": "engine", "VLLM_MODEL_PATH": str(tmp_path)})
    assert told.startswith(f"VLLM_MODEL_PATH: {tmp_path} is no model's folder")
    (tmp_path / "config.json").touch()
    found = settings.read(environ | {"COMPOSE_PROFILES": "engine", "VLLM_MODEL_PATH": str(tmp_path)})
    assert found.services[0].service.name == "vllm"


def test_every_fault_is_told_at_once(environ: dict[str, str]) -> None:
    told = faults(
        environ
        | {
            "COMPOSE_PROFILES": "demos",
            "APC_WITHOUT": "exporters",
            "GRAFANA_COOKIE_SECURE": "yes",
            "PROMETHEUS_PORT": "x",
            "GRAFANA_PORT": "9391",
        }
    )
    names = [line.partition(":")[0] for line in told.splitlines()]
    assert names == ["GRAFANA_COOKIE_SECURE", "COMPOSE_PROFILES", "APC_WITHOUT", "PROMETHEUS_PORT", "GRAFANA_PORT"]


def test_the_engines_settings_are_checked_as_exporter_and_probe_do(environ: dict[str, str]) -> None:
    assert faults(environ | {"VLLM_URL": "gpu"}).startswith("VLLM_URL: 'gpu' is no http")
    assert faults(environ | {"GATEWAY_BASE_URL": "http://gw"}).startswith("GATEWAY_API_KEY: is missing")


@pytest.mark.parametrize("password", ["admin", "ChangeMe", "short"])
def test_a_default_password_is_refused_and_not_repeated(environ: dict[str, str], password: str) -> None:
    told = faults(environ | {envfile.PASSWORD: password})
    assert told.startswith(envfile.PASSWORD)
    assert password not in told


def test_a_given_password_needs_no_file(environ: dict[str, str]) -> None:
    found = settings.read(environ | {envfile.PASSWORD: "from-the-environment"})
    assert not found.new_password
    assert not Path(environ["APC_ENV_FILE"]).exists()
    assert found.project.options == ["-p", "apc-observability", "--env-file", os.devnull]


def test_two_engines_of_one_name_are_refused(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    told = faults(environ | {"COMPOSE_PROFILES": "demo,engine", "VLLM_MODEL_PATH": str(tmp_path)})
    assert told.startswith("COMPOSE_PROFILES: demo and engine are two engines of one name")
