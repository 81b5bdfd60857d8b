"""All dashboards as files: written, or compared with what is there."""

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dashboards import canary, capacity, fleet, oncall, runbooks
from dashboards.style import Json

OUT: Final = Path(__file__).parent / "out"
LINK: Final = re.compile(r'"/d/([\w-]+)')
SHOWN_LINES, SHOWN_WIDTH = 40, 160  # of a difference


class DeadLinkError(LookupError):
    """A link to a dashboard that is not built."""


def boards() -> dict[str, Json]:
    """Return every dashboard by its uid; raises DeadLinkError."""
    made = [oncall.build(), canary.build(), capacity.build(), fleet.build(), *runbooks.build()]
    built = {board["uid"]: board for board in made}
    for uid, board in built.items():
        for target in sorted(set(LINK.findall(json.dumps(board))) - {"runbook-"}):
            if target not in built:
                raise DeadLinkError(f"{uid} links to /d/{target}, which is not built")
    return built


def texts() -> dict[Path, str]:
    """Return every file and what it is to hold, the same on every machine."""
    return {
        OUT / f"{uid}.json": json.dumps(board, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for uid, board in boards().items()
    }


def write() -> list[Path]:
    """Write the files and delete those of dashboards that are no more; return what has changed."""
    wanted = texts()
    OUT.mkdir(exist_ok=True)
    changed = [path for path, text in wanted.items() if _content(path) != text]
    for path in changed:
        path.write_text(wanted[path], encoding="utf-8", newline="\n")
    stray = sorted(set(OUT.glob("*.json")) - set(wanted))
    for path in stray:
        path.unlink()
    return changed + stray


def differences() -> Iterator[str]:
    """Yield what differs between the files and what would be written, as a diff."""
    wanted = texts()
    for path in sorted(set(wanted) | set(OUT.glob("*.json"))):
        have, want = _content(path), wanted.get(path, "")
        if have != want:
            lines = difflib.unified_diff(have.splitlines(), want.splitlines(), str(path), "built", lineterm="", n=1)
            yield "\n".join(line[:SHOWN_WIDTH] for line in [*lines][:SHOWN_LINES])


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
