"""Environment and targets file -> frozen settings, or one error that names every fault."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from exporter.checks import VARIABLE, Checks, Setting, values

TIMEOUT: Final = Setting(
    "APC_EXPORTER_TIMEOUT", "5", "seconds for one engine's answer; Prometheus' own limit bounds it further"
)
PORT: Final = Setting("APC_EXPORTER_PORT", "9391", "port to listen on")
MAX_BODY: Final = Setting("APC_EXPORTER_MAX_BODY_MIB", "16", "MiB of an answer that are read at most")
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
    PORT,
    TIMEOUT,
    MAX_BODY,
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


def load(environ: Mapping[str, str]) -> Settings:
    """Read the settings; raises ConfigError with every fault at once."""
    checks = Checks()
    value = values(SETTINGS, environ)
    own = [name for name in environ if name.startswith(OWN_PREFIX)]
    checks.known(own, [setting.name for setting in SETTINGS], "environment")
    targets = _from_file(value["APC_TARGETS"], environ, checks) if value["APC_TARGETS"] else [_from(value, checks)]
    port = checks.port(PORT, value[PORT.name])
    timeout = checks.number(TIMEOUT, value[TIMEOUT.name], 0.1, 600)
    size = checks.number(MAX_BODY, value[MAX_BODY.name], 0.001, 1024)
    checks.done()
    return Settings(tuple(targets), value["APC_EXPORTER_HOST"], port, timeout, int(size * 2**20))


def _from(value: Mapping[str, str], checks: Checks) -> Target:
    url = checks.url("VLLM_URL", value["VLLM_URL"])
    return Target(
        name=checks.label("APC_TARGET_NAME", value["APC_TARGET_NAME"]),
        url=url,
        metrics_url=_metrics_url("VLLM_METRICS_URL", value["VLLM_METRICS_URL"], url, checks),
        api_key=checks.key("VLLM_API_KEY", value["VLLM_API_KEY"]),
        model=value["VLLM_MODEL"],
        metrics_key=checks.key("VLLM_METRICS_API_KEY", value["VLLM_METRICS_API_KEY"]),
        ca_file=checks.file("VLLM_CA_FILE", value["VLLM_CA_FILE"]),
    )


class _Loader(yaml.SafeLoader):
    """Refuses a key given twice, of which YAML's own loader takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _from_file(path: str, environ: Mapping[str, str], checks: Checks) -> list[Target]:
    where = f"APC_TARGETS: {path}"
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)  # noqa: S506  # it is a safe one
    except (OSError, UnicodeDecodeError) as error:
        checks.faults.append(f"{where} cannot be read: {getattr(error, 'strerror', None) or error}")
        return []
    except yaml.MarkedYAMLError as error:  # its own text would repeat the line, and a key in it
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        checks.faults.append(f"{where} is no YAML: {line}{error.problem}")
        return []
    except yaml.YAMLError as error:
        checks.faults.append(f"{where} is no YAML: {' '.join(str(error).split())}")
        return []
    entries = content.get("targets") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        example = "targets: [{name: qwen, url: 'http://gpu-1:8000'}]"
        checks.faults.append(f"{where} has no list of targets. Example: {example}")
        return []
    checks.known(map(str, content), ["targets"], where)
    targets = [_entry(f"APC_TARGETS: targets[{i}]", entry, environ, checks) for i, entry in enumerate(entries)]
    names = [target.name for target in targets]
    checks.faults += [
        f"APC_TARGETS: two targets have the name {name!r}; each name must be unique"
        for name in sorted({n for n in names if n and names.count(n) > 1})
    ]
    return targets


def _entry(where: str, entry: Mapping[str, Any], environ: Mapping[str, str], checks: Checks) -> Target:
    secrets = [key for key in entry if key in {"api_key", "metrics_api_key", "key", "token"}]
    checks.faults += [
        f"{where}.{key}: keys are never written in the file; name an environment variable: {key}_env: QWEN_KEY"
        for key in secrets
    ]
    checks.known([str(key) for key in entry if key not in secrets], list(TARGET_KEYS), where)
    checks.faults += [
        f"{where}.{key}: is no text. Example: {key}: {example}"
        for key, example in TARGET_KEYS.items()
        if key in entry and not isinstance(entry[key], str)
    ]
    text = {key: str(entry[key]).strip() if isinstance(entry.get(key), str) else "" for key in TARGET_KEYS}
    checks.faults += [
        f"{where}.{key}: is {'empty' if key in entry else 'missing'}. Example: {key}: {TARGET_KEYS[key]}"
        for key in REQUIRED_KEYS
        if not text[key] and isinstance(entry.get(key, ""), str)
    ]
    url = checks.url(f"{where}.url", text["url"]) if text["url"] else ""
    return Target(
        name=checks.label(f"{where}.name", text["name"]),
        url=url,
        metrics_url=_metrics_url(f"{where}.metrics_url", text["metrics_url"], url, checks),
        api_key=_key_of(f"{where}.api_key_env", text["api_key_env"], environ, checks),
        model=text["model"],
        metrics_key=_key_of(f"{where}.metrics_api_key_env", text["metrics_api_key_env"], environ, checks),
        ca_file=checks.file(f"{where}.ca_file", text["ca_file"]),
    )


def _metrics_url(name: str, text: str, base: str, checks: Checks) -> str:
    """Return the page itself: what it is called is the operator's own."""
    if not text:
        return f"{base}/metrics"
    return text if checks.url(name, text) else ""


def _key_of(name: str, variable: str, environ: Mapping[str, str], checks: Checks) -> str:
    key = environ.get(variable, "").strip()
    if variable and not key:
        shown = variable if VARIABLE.fullmatch(variable) else "variable of that name; a key itself is not written here"
        checks.faults.append(f"{name}: the environment has no {shown}")
    return checks.key(variable, key)
