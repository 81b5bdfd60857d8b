"""Environment -> checked settings of the stack. What only the exporter reads is checked by the exporter."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from exporter import checks
from native.errors import SettingsError
from prometheus import receivers

ROOT: Final = Path(__file__).resolve().parents[1]
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Setting(checks.Setting):
    """A setting with the form of a good value."""

    form: str = r".*"


_DURATION: Final = r"(\d+(ms|[smhdwy]))+"
SETTINGS: Final = (
    Setting("VLLM_URL", "http://localhost:8000", "the engine, with or without /v1"),
    Setting("APC_TARGETS", "", "a YAML file with several engines, in place of VLLM_URL"),
    Setting("APC_EXPORTER_HOST", LOOPBACK, "address that the exporter listens on", r"[\w.:-]+"),
    Setting("APC_PROBE_HOST", LOOPBACK, "address that the probe listens on", r"[\w.:-]+"),
    Setting("APC_SCRAPE_INTERVAL", "15s", "time between two scrapes, at most 30s", r"[1-9]\d*(s|m)"),
    Setting("PROMETHEUS_RETENTION_TIME", "30d", "for how long Prometheus keeps its data", _DURATION),
    Setting("PROMETHEUS_RETENTION_SIZE", "5GB", "how much of it Prometheus keeps", r"\d+(\.\d+)?([KMGTPE]?B)"),
    Setting("APC_ENV_FILE", ".env", "file of settings and keys, one NAME=value a line; the environment goes first"),
    Setting("APC_RUN_DIR", ".run", "folder of logs, data and rendered configuration"),
    *(Setting(known.name, known.default, known.meaning) for known in receivers.SETTINGS),
)
# The rules' shortest window is a minute, and a rate needs two scrapes in it.
LONGEST_INTERVAL_SECONDS: Final = 30
# What the programs read besides SETTINGS, and perhaps in no table of ours: keys have any name.
_PASSED_ON: Final = re.compile(
    r"(VLLM|APC|TAOTOKEN|GATEWAY)_.*|.*(KEY|TOKEN|SECRET|PASSWORD)|(?i:(https?|no|all)_proxy)"
)


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the stack: the setting that moves it, and its default."""

    setting: str
    default: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked settings; `values` has each setting and port by name, `environ` is what the programs inherit."""

    run: Path  # absolute
    values: Mapping[str, str]
    environ: Mapping[str, str]


def read(environ: Mapping[str, str], ports: Iterable[Port]) -> Settings:
    """Check the settings; raises SettingsError with every fault at once."""
    ports = list(ports)
    defaults = {setting.name: setting.default for setting in SETTINGS}
    defaults |= {port.setting: str(port.default) for port in ports}
    values = {name: environ.get(name, "").strip() or default for name, default in defaults.items()}
    faults = [
        f"{s.name}: {values[s.name]!r} is not understood. Example: {s.name}={s.default}"
        for s in SETTINGS
        if not re.fullmatch(s.form, values[s.name])
    ]
    faults += [fault for port in ports if (fault := _port_fault(port, values[port.setting]))]
    faults += _duplicates({port.setting: values[port.setting] for port in ports})
    if not faults and seconds(values["APC_SCRAPE_INTERVAL"]) > LONGEST_INTERVAL_SECONDS:
        faults.append(
            f"APC_SCRAPE_INTERVAL: {values['APC_SCRAPE_INTERVAL']} is too long: the alerts' shortest window, a minute, "
            f"has to hold two scrapes; at most {LONGEST_INTERVAL_SECONDS}s"
        )
    if faults:
        raise SettingsError("\n".join(faults))
    return Settings(run_folder(environ), values, environ)


def run_folder(environ: Mapping[str, str]) -> Path:
    """Return the stack's folder, which is all that commands on a running stack need to know."""
    return (ROOT / (environ.get("APC_RUN_DIR", "").strip() or ".run")).resolve()


def seconds(duration: str) -> int:
    """Return the seconds of an interval such as 15s or 1m."""
    return int(duration[:-1]) * (60 if duration.endswith("m") else 1)


def passed_on(environ: Mapping[str, str], rendered: Iterable[str]) -> dict[str, str]:
    """Return what programs read from the environment they inherit, without what is `rendered` for them."""
    known = set(rendered)
    return {name: value for name, value in environ.items() if _PASSED_ON.fullmatch(name) and name not in known}


def _port_fault(port: Port, text: str) -> str:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= 65_535:  # noqa: PLR2004
        return ""
    return f"{port.setting}: {text!r} is no port from 1 to 65535. Example: {port.setting}={port.default}"


def _duplicates(ports: Mapping[str, str]) -> list[str]:
    first: dict[str, str] = {}
    return [
        f"{name}: port {number} is {first[number]}'s as well; each needs its own"
        for name, number in ports.items()
        if first.setdefault(number, name) != name
    ]
