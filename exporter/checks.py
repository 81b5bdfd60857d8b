"""Checks of settings that collect every fault: each names the setting, what is wrong, and an example."""

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

LONGEST_NAME = 100
NOT_IN_A_URL = re.compile(r"[\s<>{}$\"'\\^`|]")
API_PAGE = re.compile(r"/(?:(?:chat/)?completions|responses|embeddings|models)/*$")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable: its default and what it means."""

    name: str
    default: str
    meaning: str


def listing(settings: Iterable[Setting]) -> str:
    """Return a line of help for each setting."""
    known = list(settings)
    width = max(len(setting.name) for setting in known)
    return "\n".join(f"  {s.name:<{width}}  {s.meaning}{f' [{s.default}]' if s.default else ''}" for s in known)


class ConfigError(ValueError):
    """The settings are wrong; `faults` has one line for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults

    def tell(self) -> None:
        """Print every fault for a person, to standard error."""
        print("The settings are wrong:", *(f"  {fault}" for fault in self.faults), sep="\n", file=sys.stderr)


class Checks:
    """Reads values and keeps what is wrong with them; `done` raises if anything is."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def done(self) -> None:
        """Raise ConfigError with every fault, if there are any."""
        if self.faults:
            raise ConfigError(self.faults)

    def url(self, name: str, text: str) -> str:
        """Return the base URL without a trailing slash, /v1 or /metrics."""
        example = f"Example: {name.rpartition('.')[2]}{': ' if '.' in name else '='}http://localhost:8000"
        fault = _fault_of_url(text)
        if fault:
            self.faults.append(f"{name}: {fault}. {example}")
            return ""
        base = text.rstrip("/")
        for page in ("/metrics", "/v1"):
            base = base.removesuffix(page).rstrip("/")
        return base

    def label(self, name: str, text: str) -> str:
        """Return a text that can be the name of a target."""
        if not text.isprintable() or len(text) > LONGEST_NAME:
            self.faults.append(f"{name}: must be printable and at most {LONGEST_NAME} characters. Example: qwen-gpu1")
        return text

    def key(self, name: str, text: str) -> str:
        """Return a key; it is never repeated in a message."""
        if any(c.isspace() or not c.isascii() or not c.isprintable() for c in text):
            why = "holds a blank, a line break or a character that no key has; was it cut or pasted twice?"
            self.faults.append(f"{name}: {why}")
            return ""
        return text

    def file(self, name: str, text: str) -> str:
        """Return the path; one where no file is, is a fault."""
        if text and not Path(text).is_file():
            self.faults.append(f"{name}: there is no file {text}")
        return text

    def number(self, setting: Setting, text: str, low: float, high: float) -> float:
        """Return a number in a range; the setting's default where it is none."""
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            example = f"Example: {setting.name}={setting.default}"
            self.faults.append(f"{setting.name}: {text[:40]!r} is no number from {low:g} to {high:g}. {example}")
            return float(setting.default)
        return number

    def port(self, setting: Setting, text: str) -> int:
        """Return a port to listen on."""
        number = self.number(setting, text, 1, 65_535)
        if number != int(number):
            example = f"Example: {setting.name}={setting.default}"
            self.faults.append(f"{setting.name}: {number} is no whole number. {example}")
        return int(number)

    def known(self, names: Iterable[str], known: list[str], where: str) -> None:
        """Refuse names that are not known, with the nearest that is."""
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
                self.faults.append(f"{where}: {name} is unknown{hint}")


def values(settings: Iterable[Setting], environ: Mapping[str, str]) -> dict[str, str]:
    """Return each setting's value, trimmed, or its default."""
    return {setting.name: environ.get(setting.name, "").strip() or setting.default for setting in settings}


def _fault_of_url(text: str) -> str:
    """Return what is wrong with an address, "" if nothing is."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        return f"{_shown(text)!r} is no http or https address"
    if parts.username or parts.password:
        return "holds a user or password, which would be logged; use a key setting"
    if "?" in text or "#" in text:
        return f"{_shown(text)!r} has a query or fragment after it"
    if odd := NOT_IN_A_URL.search(text):
        return f"{_shown(text)!r} holds {odd[0]!r}, as a placeholder does and no address"
    if page := API_PAGE.search(text):
        return f"{_shown(text)!r} is a page of the API; leave out {page[0]}"
    return ""


def _shown(text: str) -> str:
    """Cut a value for a message; what stands before an `@` or after a `?` may be a secret."""
    return "..." if "@" in text else re.split("[?#]", text)[0][:80]
