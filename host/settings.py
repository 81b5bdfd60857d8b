"""Environment and .env -> checked settings of the stack in Docker; what both stacks know, `native` checks."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from host.services import OPTIONAL, PROFILES, PROJECT, Placed, chosen
from native import envfile
from native import settings as native
from native.errors import SettingsError
from native.settings import ROOT, Setting
from probes.config import load as check_engines

SETTINGS: Final = (
    Setting("COMPOSE_PROFILES", "", f"engines to run as well: {' or '.join(PROFILES)}"),
    Setting("APC_WITHOUT", "", f"services to leave out, with commas: {', '.join(OPTIONAL)}"),
    Setting("COMPOSE_PROJECT_NAME", PROJECT, "name before containers and volumes", r"[a-z0-9][a-z0-9_-]*"),
    Setting("GRAFANA_COOKIE_SECURE", "false", "true where Grafana is behind https", "true|false"),
    Setting("PROMETHEUS_MEMORY", "2g", "most memory for Prometheus", r"[1-9]\d*[kmg]"),
    Setting("PROMETHEUS_EXTRA_CONFIG", "", "file appended to prometheus.yml, e.g. compose/examples/remote_write.yml"),
    Setting("VLLM_MODEL_PATH", "model", "profile engine: the folder of the model"),
    Setting("VLLM_GPU_MEMORY_UTILIZATION", "0.9", "profile engine: share of the GPU's memory", r"0?\.\d+|1(\.0*)?"),
    Setting("VLLM_EXTRA_ARGS", "", "profile engine: more flags for vllm serve"),
    Setting("APC_IMAGE", "", "image of exporter, probe and demo; built here where it is not given"),
    Setting("PYTHON_IMAGE", "python:3.11-slim-trixie", "what it is built on"),
    Setting("PROMETHEUS_IMAGE", "prom/prometheus:v3.15.0", "image"),
    Setting("ALERTMANAGER_IMAGE", "prom/alertmanager:v0.34.1", "image"),
    Setting("GRAFANA_IMAGE", "grafana/grafana:13.3.0", "image"),
    Setting("VLLM_IMAGE", "vllm/vllm-openai:v0.33.0", "image"),
)
IN_STACK: Final = "http://engine:9000"  # what the engines of both profiles are called there
WEAK: Final = frozenset({"admin", "changeme", "grafana", "password", "secret", "12345678"})
SHORTEST_PASSWORD: Final = 8


@dataclass(frozen=True, slots=True)
class Project:
    """What commands on a running stack need to know: its name and its settings file, which there need not be."""

    name: str
    env_file: Path  # absolute

    @property
    def options(self) -> list[str]:
        """The options with which Compose means this stack."""
        return ["-p", self.name, "--env-file", str(self.env_file) if self.env_file.exists() else os.devnull]


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked settings: `values` by name, and `environ`, which has keys besides."""

    values: dict[str, str]
    environ: dict[str, str]
    run: Path  # absolute
    project: Project
    services: tuple[Placed, ...]
    new_password: bool

    @property
    def folder(self) -> Path:
        """What is written for the containers to read."""
        return self.run / "docker"


def project(environ: Mapping[str, str]) -> Project:
    """Return the stack that the settings mean."""
    name = envfile.merged(environ).get("COMPOSE_PROJECT_NAME", "").strip() or PROJECT
    return Project(name, envfile.path_in(environ))


def read(environ: Mapping[str, str]) -> Settings:
    """Check the settings, making the settings file at the first run; raises SettingsError with every fault."""
    path = envfile.path_in(environ)
    added = not environ.get(envfile.PASSWORD, "").strip() and envfile.ensure_password(path)
    merged = envfile.merged(environ)
    values = {s.name: merged.get(s.name, "").strip() or s.default for s in SETTINGS}
    faults = [
        f"{s.name}: {values[s.name]!r} is not understood. Example: {s.name}={s.default}"
        for s in SETTINGS
        if not re.fullmatch(s.form, values[s.name])
    ]
    profiles, without = (_list(values[name]) for name in ("COMPOSE_PROFILES", "APC_WITHOUT"))
    faults += _unknown("COMPOSE_PROFILES", profiles, PROFILES) + _unknown("APC_WITHOUT", without, OPTIONAL)
    if set(profiles) == set(PROFILES):
        faults.append(f"COMPOSE_PROFILES: {' and '.join(PROFILES)} are two engines of one name; choose one")
    if profiles and not merged.get("VLLM_URL", "").strip():
        merged["VLLM_URL"] = IN_STACK
    services = chosen(profiles, without)
    faults += _password_faults(merged[envfile.PASSWORD].strip(), path)
    extra = values["PROMETHEUS_EXTRA_CONFIG"]
    if extra and not (ROOT / extra).is_file():
        faults.append(f"PROMETHEUS_EXTRA_CONFIG: there is no file {ROOT / extra}")
    faults += _model_faults(values["VLLM_MODEL_PATH"]) if "engine" in profiles else []
    shared: dict[str, str] = {}
    try:
        checked = native.read(merged, [service.port for service in services if service.port])
        shared = dict(checked.values)
        check_engines(merged | {"VLLM_URL": shared["VLLM_URL"]})
    except (SettingsError, ValueError) as error:  # ValueError: the engines' faults, a line each
        faults.append(str(error))
    if faults:
        raise SettingsError("\n".join(faults))
    values |= shared | {"VLLM_MODEL_PATH": str((ROOT / values["VLLM_MODEL_PATH"]).resolve())}
    placed = tuple(Placed(s, int(values[s.port.setting]) if s.port else 0) for s in services)
    return Settings(values, merged, checked.run, Project(values["COMPOSE_PROJECT_NAME"], path), placed, added)


def _list(text: str) -> list[str]:
    return [part for part in re.split(r"[,\s]+", text) if part]


def _unknown(name: str, given: list[str], known: tuple[str, ...]) -> list[str]:
    return [f"{name}: {part!r} is unknown; known are {', '.join(known)}" for part in given if part not in known]


def _password_faults(password: str, path: Path) -> list[str]:
    if len(password) >= SHORTEST_PASSWORD and password.lower() not in WEAK:
        return []
    why = f"is a default or has fewer than {SHORTEST_PASSWORD} characters"
    return [f"{envfile.PASSWORD}: {why}. Delete its line in {path}, and a random one is made"]


def _model_faults(path: str) -> list[str]:
    folder = (ROOT / path).resolve()
    if (folder / "config.json").is_file():
        return []
    return [f"VLLM_MODEL_PATH: {folder} is no model's folder (no config.json). Example: VLLM_MODEL_PATH=/models/qwen"]
