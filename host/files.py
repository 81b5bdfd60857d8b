"""What the containers read of this machine, in one folder: engines, keys and configuration.

Keys lie in files, one for each, in a folder for each service, so that neither `docker inspect` nor an argv has them
and no service sees another's. The folder around them lets only its owner in; within it they are readable, because a
container's user is another.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from exporter.checks import ConfigError
from native import folder as native_folder
from native.envfile import PASSWORD
from native.errors import SettingsError
from native.render import prometheus_config
from native.settings import ROOT
from prometheus import receivers

KEYS: Final = {
    "exporter": ("VLLM_METRICS_API_KEY",),
    "probe": ("VLLM_API_KEY", "VLLM_METRICS_API_KEY", "GATEWAY_API_KEY", "TAOTOKEN_API_KEY"),
    "vllm": ("VLLM_API_KEY",),
    "grafana": (PASSWORD,),
    "prometheus": ("REMOTE_WRITE_PASSWORD",),
}
ASK_ENGINES: Final = ("exporter", "probe")


def write(folder: Path, environ: Mapping[str, str], files: Mapping[str, bytes], extra_keys: Iterable[str]) -> None:
    """Write engines and keys; a file whose content stays is left alone. Raises SettingsError naming the setting."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fill(folder / "engines", files)
        (folder / "secrets").mkdir(mode=0o700, exist_ok=True)
        (folder / "secrets").chmod(0o700)
        for service, names in KEYS.items():
            wanted = {*names, *(extra_keys if service in ASK_ENGINES else ())}
            keys = {name: environ[name].strip() for name in sorted(wanted) if environ.get(name, "").strip()}
            _fill(folder / "secrets" / service, {name: key.encode() for name, key in keys.items()})
    except OSError as error:
        raise SettingsError(f"APC_RUN_DIR: cannot write {error.filename or folder}: {error.strerror}") from error


def write_prometheus(folder: Path, interval: str, extra: str) -> Path:
    """Write Prometheus' configuration with this scrape interval, and an extra file appended; returns its path."""
    source = (ROOT / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    text = prometheus_config(source, interval)
    if extra:
        text += "\n" + (ROOT / extra).read_text(encoding="utf-8")
    _fill(folder / "prometheus", {"prometheus.yml": text.encode()})
    return folder / "prometheus" / "prometheus.yml"


def write_alertmanager(folder: Path, environ: Mapping[str, str]) -> None:
    """Write Alertmanager's configuration, and the secrets of its channels beside it; raises SettingsError."""
    source = (ROOT / "prometheus" / "alertmanager.yml").read_text(encoding="utf-8")
    try:
        text = receivers.render(source, environ, mounted="/run/secrets")
    except ConfigError as error:
        raise SettingsError(str(error)) from error
    given = {channel.name: environ.get(channel.name, "").strip() for channel in receivers.CHANNELS}
    secrets = {name: (ROOT / path).read_bytes() for name, path in given.items() if path}
    _fill(folder / "secrets" / "alertmanager", secrets | {"alertmanager.yml": text.encode()})


def marks(folder: Path) -> dict[str, str]:
    """Return what compose.yaml labels services with: it changes with the files that they read at their start only.

    Of keys it is the time of the last change, never a digest.
    """
    read = [folder / "prometheus", ROOT / "prometheus" / "rules", ROOT / "compose" / "targets"]
    return {
        "APC_READS_ENGINES": _mark(folder, ASK_ENGINES, [folder / "engines"]),
        "APC_READS_VLLM": _mark(folder, ["vllm"], []),
        "APC_READS_PROMETHEUS": _mark(folder, ["prometheus"], read),
        "APC_READS_ALERTMANAGER": _mark(folder, ["alertmanager"], []),
        "APC_READS_GRAFANA": _mark(folder, ["grafana"], [ROOT / "dashboards" / "provisioning"]),
    }


def _mark(folder: Path, services: Iterable[str], paths: Iterable[Path]) -> str:
    changed = max((_changed(folder / "secrets" / service) for service in services), default=0)
    return f"{native_folder.fingerprint(paths)}-{changed}"


def delete(folder: Path) -> None:
    """Delete what was written, and no other file: the user chose the folder above."""
    shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder hold these files and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for old in folder.iterdir():
        if old.name not in files:
            old.unlink()
    for name, content in files.items():
        path = folder / name
        if path.exists() and path.read_bytes() == content:
            continue
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(0o444)


def _changed(folder: Path) -> int:
    """Return when a file in the folder changed, came or went for the last time."""
    return max((path.stat().st_mtime_ns for path in (folder, *folder.rglob("*")) if path.exists()), default=0)
