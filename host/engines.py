"""Engines as the machine names them -> as a container reaches them: addresses, the targets file, CA files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from host.reach import from_container

INSIDE: Final = "/etc/apc"  # where compose.yaml mounts the files
ADDRESSES: Final = ("VLLM_URL", "VLLM_METRICS_URL", "GATEWAY_BASE_URL", "TAOTOKEN_BASE_URL")


@dataclass(slots=True)
class Engines:
    """Settings and the files that they name, in a container's terms; `keys` are variables that the file names."""

    settings: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    rewritten: list[tuple[str, str]] = field(default_factory=list)  # what was said, and what it became


def translate(environ: Mapping[str, str]) -> Engines:
    """Translate checked settings; reads the files that they name."""
    found = Engines()
    for name in ADDRESSES:
        if url := environ.get(name, "").strip():
            found.settings[name] = _address(url, found)
    if ca_file := environ.get("VLLM_CA_FILE", "").strip():
        found.settings["VLLM_CA_FILE"] = _copy(ca_file, "ca.pem", found)
    if targets := environ.get("APC_TARGETS", "").strip():
        entries = yaml.safe_load(Path(targets).read_text(encoding="utf-8"))["targets"]
        translated = [_entry(entry, index, found) for index, entry in enumerate(entries)]
        found.files["targets.yml"] = yaml.safe_dump({"targets": translated}, sort_keys=False).encode()
        found.settings["APC_TARGETS"] = f"{INSIDE}/targets.yml"
    return found


def _entry(entry: Mapping[str, Any], index: int, found: Engines) -> dict[str, Any]:
    translated = dict(entry)
    for key, value in entry.items():
        if key == "ca_file":
            translated[key] = _copy(value, f"ca-{index}.pem", found)
        elif key.endswith("_env"):
            found.keys.append(value)
        elif isinstance(value, str) and "://" in value:
            translated[key] = _address(value, found)
    return translated


def _address(url: str, found: Engines) -> str:
    inside = from_container(url)
    if inside != url:
        found.rewritten.append((url, inside))
    return inside


def _copy(path: str, name: str, found: Engines) -> str:
    found.files[name] = Path(path).read_bytes()
    return f"{INSIDE}/{name}"
