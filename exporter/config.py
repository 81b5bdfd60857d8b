"""Environment and targets file -> frozen settings, or one error that names every fault. Pure but for reading files."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable: its default and what it means."""

    name: str
    default: str
    meaning: str


SETTINGS: Final = (
    Setting("VLLM_URL", "http://localhost:8000", "the engine, with or without /v1"),
    Setting("VLLM_API_KEY", "", "key of the engine's API, for the canary"),
    Setting("VLLM_MODEL", "", "model id for the canary; else the first of /v1/models"),
    Setting("VLLM_METRICS_URL", "", "its metrics page where that is not VLLM_URL/metrics"),
    Setting("VLLM_METRICS_API_KEY", "", "bearer token for the metrics page; the API's key is never sent there"),
    Setting("VLLM_CA_FILE", "", "certificate authority for https, a PEM file"),
    Setting("APC_TARGET_NAME", "vllm", "the engine's name in the label `target`"),
    Setting("APC_TARGETS", "", "a YAML file with several engines, in place of the above"),
    Setting("APC_EXPORTER_HOST", "127.0.0.1", "address to listen on"),
    Setting("APC_EXPORTER_PORT", "9391", "port to listen on"),
    Setting(
        "APC_EXPORTER_TIMEOUT",
        "5",
        "seconds for one engine's answer; Prometheus' own limit bounds it further",
    ),
    Setting("APC_EXPORTER_MAX_BODY_MIB", "16", "MiB of an answer that are read at most"),
)
TARGET_KEYS: Final = {
    "name": "qwen",
    "url": "http://gpu-1:8000",
    "api_key_env": "QWEN_KEY",
    "model": "qwen2.5-7b-instruct",
    "metrics_url": "http://gpu-1:8000/metrics",
    "metrics_api_key_env": "QWEN_METRICS_KEY",
    "ca_file": "/etc/ssl/private-ca.pem",
}
REQUIRED_KEYS: Final = ("name", "url")
KEY_NAMES: Final = ("api_key_env", "metrics_api_key_env")
OWN_PREFIX: Final = "APC_EXPORTER_"


@dataclass(frozen=True, slots=True)
class Target:
    """One engine to ask. Its keys are not shown where it is printed."""

    name: str
    url: str  # without /v1
    metrics_url: str
    api_key: str = field(default="", repr=False)
    model: str = ""
    metrics_key: str = field(default="", repr=False)
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the exporter can be told; timeout in seconds."""

    targets: tuple[Target, ...]
    host: str
    port: int
    timeout: float
    max_body_bytes: int


class ConfigError(ValueError):
    """The settings are wrong; `faults` has one line for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def load(environ: Mapping[str, str]) -> Settings:
    """Read the settings; raises ConfigError with every fault at once."""
    faults: list[str] = []
    value = {s.name: environ.get(s.name, "").strip() or s.default for s in SETTINGS}
    faults += _unknown([n for n in environ if n.startswith(OWN_PREFIX)], [s.name for s in SETTINGS], "environment")
    targets = _from_file(value["APC_TARGETS"], environ, faults) if value["APC_TARGETS"] else _from(value, faults)
    port = _number("APC_EXPORTER_PORT", value["APC_EXPORTER_PORT"], 1, 65_535, faults)
    timeout = _number("APC_EXPORTER_TIMEOUT", value["APC_EXPORTER_TIMEOUT"], 0.1, 600, faults)
    size = _number("APC_EXPORTER_MAX_BODY_MIB", value["APC_EXPORTER_MAX_BODY_MIB"], 0.001, 1024, faults)
    if port != int(port):
        faults.append(f"APC_EXPORTER_PORT: {port} is no whole number. Example: APC_EXPORTER_PORT=9391")
    if faults:
        raise ConfigError(faults)
    return Settings(tuple(targets), value["APC_EXPORTER_HOST"], int(port), timeout, int(size * 2**20))


def _from(value: Mapping[str, str], faults: list[str]) -> list[Target]:
    return [
        Target(
            name=_name("APC_TARGET_NAME", value["APC_TARGET_NAME"], faults),
            url=(url := _url("VLLM_URL", value["VLLM_URL"], faults)),
            metrics_url=_metrics_url("VLLM_METRICS_URL", value["VLLM_METRICS_URL"], url, faults),
            api_key=_key("VLLM_API_KEY", value["VLLM_API_KEY"], faults),
            model=value["VLLM_MODEL"],
            metrics_key=_key("VLLM_METRICS_API_KEY", value["VLLM_METRICS_API_KEY"], faults),
            ca_file=_file("VLLM_CA_FILE", value["VLLM_CA_FILE"], faults),
        )
    ]


def _from_file(path: str, environ: Mapping[str, str], faults: list[str]) -> list[Target]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"APC_TARGETS: {path} cannot be read: {getattr(error, 'strerror', None) or error}")
        return []
    except yaml.YAMLError as error:
        faults.append(f"APC_TARGETS: {path} is no YAML: {' '.join(str(error).split())}")
        return []
    entries = content.get("targets") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        example = "targets: [{name: qwen, url: 'http://gpu-1:8000'}]"
        faults.append(f"APC_TARGETS: {path} has no list of targets. Example: {example}")
        return []
    faults += _unknown(list(content), ["targets"], f"APC_TARGETS: {path}")
    targets = [_entry(f"APC_TARGETS: targets[{i}]", entry, environ, faults) for i, entry in enumerate(entries)]
    names = [target.name for target in targets]
    faults += [
        f"APC_TARGETS: two targets have the name {name!r}; each name must be unique"
        for name in sorted({n for n in names if n and names.count(n) > 1})
    ]
    return targets


def _entry(where: str, entry: Mapping[str, Any], environ: Mapping[str, str], faults: list[str]) -> Target:
    secrets = [key for key in entry if key in {"api_key", "metrics_api_key", "key", "token"}]
    faults += [
        f"{where}.{key}: keys are never written in the file; name an environment variable: {key}_env: QWEN_KEY"
        for key in secrets
    ]
    faults += _unknown([str(key) for key in entry if key not in secrets], list(TARGET_KEYS), where)
    faults += [
        f"{where}.{key}: is missing. Example: {key}: {TARGET_KEYS[key]}" for key in REQUIRED_KEYS if key not in entry
    ]
    text = {}
    for key in TARGET_KEYS:
        if key in entry and not isinstance(entry[key], str):
            faults.append(f"{where}.{key}: is no text. Example: {key}: {TARGET_KEYS[key]}")
        text[key] = entry[key].strip() if isinstance(entry.get(key), str) else ""
    keys = {name: _key_of(f"{where}.{name}", text[name], environ, faults) for name in KEY_NAMES}
    url = _url(f"{where}.url", text["url"], faults) if text["url"] else ""
    return Target(
        name=_name(f"{where}.name", text["name"], faults) if text["name"] else "",
        url=url,
        metrics_url=_metrics_url(f"{where}.metrics_url", text["metrics_url"], url, faults),
        api_key=keys["api_key_env"],
        model=text["model"],
        metrics_key=keys["metrics_api_key_env"],
        ca_file=_file(f"{where}.ca_file", text["ca_file"], faults),
    )


def _url(name: str, text: str, faults: list[str]) -> str:
    """Return the base URL without a trailing slash, /v1 or /metrics."""
    example = f"Example: {name.rpartition('.')[2]}{': ' if '.' in name else '='}http://localhost:8000"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        faults.append(f"{name}: {_shown(text)!r} is no http or https address. {example}")
        return ""
    if parts.username or parts.password:
        faults.append(f"{name}: holds a user or password, which would be logged; use a key setting. {example}")
        return ""
    if parts.query or parts.fragment:
        faults.append(f"{name}: {_shown(text)!r} has a query or fragment. {example}")
        return ""
    base = text.rstrip("/")
    for page in ("/metrics", "/v1"):
        base = base.removesuffix(page).rstrip("/")
    return base


def _shown(text: str) -> str:
    """Cut a value for a message; what stands before an `@` may be a secret."""
    return text.rpartition("@")[2][:80]


def _metrics_url(name: str, text: str, base: str, faults: list[str]) -> str:
    if not text:
        return f"{base}/metrics"
    checked = _url(name, text, faults)
    return text if checked else ""


def _name(name: str, text: str, faults: list[str]) -> str:
    if not text.isprintable() or len(text) > 100:  # noqa: PLR2004
        faults.append(f"{name}: must be printable and at most 100 characters. Example: qwen-gpu1")
    return text


def _key(name: str, text: str, faults: list[str]) -> str:
    """Check a key without ever repeating it."""
    if any(c.isspace() or not c.isascii() or not c.isprintable() for c in text):
        faults.append(
            f"{name}: holds a blank, a line break or a character that no key has; was it cut or pasted twice?"
        )
        return ""
    return text


def _key_of(name: str, variable: str, environ: Mapping[str, str], faults: list[str]) -> str:
    if variable and not environ.get(variable, "").strip():
        faults.append(f"{name}: the environment has no {variable}")
    return _key(variable, environ.get(variable, "").strip(), faults) if variable else ""


def _file(name: str, text: str, faults: list[str]) -> str:
    if text and not Path(text).is_file():
        faults.append(f"{name}: there is no file {text}")
    return text


def _number(name: str, text: str, low: float, high: float, faults: list[str]) -> float:
    default = next(s.default for s in SETTINGS if s.name == name)
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        faults.append(f"{name}: {text[:40]!r} is no number from {low:g} to {high:g}. Example: {name}={default}")
        return float(default)
    return number


def _unknown(names: list[str], known: list[str], where: str) -> list[str]:
    faults = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            faults.append(f"{where}: {name} is unknown{hint}")
    return faults
