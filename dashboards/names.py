"""The metric names that a dashboard may use: what exporter and probe declare and what the rules record."""

import difflib
import re
from functools import cache
from pathlib import Path
from typing import Final

from exporter.metrics import FAMILIES as EXPORTED
from probes.metrics import FAMILIES as PROBED

RULES: Final = Path(__file__).parents[1] / "prometheus" / "rules"
RECORDED: Final = re.compile(r"""record:\s*["']?([\w:]+)""")
# Of Prometheus itself.
FOREIGN: Final = frozenset({"up", "ALERTS", "ALERTS_FOR_STATE"})
OURS: Final = re.compile(r"(?<![\w:$])(?:\w+:)*apc_\w+(?::\w+)*")
SUFFIX: Final = re.compile(r"_(bucket|sum|count)$")
LABELS: Final = re.compile(r"""\{(?:"[^"]*"|'[^']*'|`[^`]*`|[^{}"'`])*\}|"[^"]*"|'[^']*'|`[^`]*`""")


class UnknownNameError(ValueError):
    """A name that nobody exports or records."""


@cache
def known() -> frozenset[str]:
    """Return every name that a query may use."""
    recorded = {name for path in RULES.glob("*.yml") for name in RECORDED.findall(path.read_text(encoding="utf-8"))}
    return frozenset({family.name for family in (*EXPORTED, *PROBED)} | recorded | FOREIGN)


def unknown(expression: str) -> list[str]:
    """Return the names of ours in a PromQL expression that do not exist."""
    used = set(OURS.findall(LABELS.sub("", expression)))
    return sorted(name for name in used if name not in known() and SUFFIX.sub("", name) not in known())


def check(expression: str) -> str:
    """Return the expression; raise UnknownNameError, with what may have been meant, on a name that does not exist."""
    for name in unknown(expression):
        near = difflib.get_close_matches(name, known(), 1)
        hint = f"; {near[0]}?" if near else ""
        raise UnknownNameError(f"{name} is neither declared nor recorded{hint}")
    return expression
