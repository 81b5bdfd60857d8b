"""The file of settings and keys, which `docker compose` reads too: its first version, and the values in it.

What Compose would take apart further (`$` outside single quotes, values over several lines) is refused here, so that
both always read the same.
"""

import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from native.errors import SettingsError
from native.settings import ROOT

PASSWORD: Final = "GF_SECURITY_ADMIN_PASSWORD"  # noqa: S105 - its name
_HEADER: Final = """\
# Settings and keys of the stack, one NAME=value a line; the environment goes first. Yours to edit, never to
# commit. A `$` is only taken as it is within single quotes.
# Grafana's first password (user admin). Once Grafana has run, change it there.
"""
_LINE: Final = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*
    (?: '(?P<literal>[^']*)' | "(?P<quoted>[^"\\$]*)" | (?P<plain>[^'"$\s\#][^$\s]*(?:[ \t]+[^$\s\#][^$\s]*)*)? )
    (?:\s+\#.*|\s*)""",
    re.VERBOSE,
)


def path_in(environ: Mapping[str, str]) -> Path:
    """Return where the file is, which there need not be."""
    return (ROOT / (environ.get("APC_ENV_FILE", "").strip() or ".env")).resolve()


def merged(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the file's values under the environment's; a blank one counts as not given."""
    given = {name: value for name, value in environ.items() if value.strip()}
    return {**environ, **read(path_in(environ)), **given}


def read(path: Path) -> dict[str, str]:
    """Return the values; empty where there is no file. Raises SettingsError naming each line that is not understood."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    values, faults = {}, []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if match := _LINE.fullmatch(line):
            values[match["name"]] = match["literal"] or match["quoted"] or match["plain"] or ""
        else:
            faults.append(f"{path}, line {number}: is no NAME=value. With a '$' or a quote in it: NAME='value'")
    if faults:
        raise SettingsError("\n".join(faults))
    return values


def ensure_password(path: Path) -> bool:
    """Add a random password for Grafana unless there is one; returns whether one was added.

    A new file is for its owner only from the first moment on.
    """
    if read(path).get(PASSWORD):
        return False
    line = f"{PASSWORD}={secrets.token_urlsafe(18)}\n"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            end = path.read_bytes()[-1:]
            file.write(("" if end in {b"", b"\n"} else "\n") + ("" if end else _HEADER) + line)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error
    return True


def others_may_read(path: Path) -> bool:
    """Whether the file is open to more than its owner."""
    return path.exists() and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
