"""As much of PromQL as the lint has to see: functions with their windows, aggregations, matchers of variables."""

import re
from collections.abc import Iterator
from typing import Final

# They need two samples in their window.
OVER_TWO: Final = "rate|irate|increase|delta|idelta|deriv|resets|changes|predict_linear"
WINDOW: Final = re.compile(rf"\b(?:{OVER_TWO})\s*\(([^()\[\]]*)\[([^\]:]+)(?::[^\]]*)?\]")
SUM: Final = re.compile(r"\bsum\b\s*(?:(?:by|without)\s*\([^)]*\)\s*)?\(")
SHARE: Final = re.compile(r"(?<![\w:$])[a-zA-Z_:][\w:]*(?:_(?:perc|ratio|rate)|:ratio\w*)(?![\w:(])")
QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
DURATION: Final = re.compile(r"(\d+)(ms|[smhdwy])")
SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800, "y": 31_536_000}


def windows(expr: str) -> Iterator[str]:
    """Yield the windows of functions that need two samples."""
    for found in WINDOW.finditer(QUOTED.sub('""', expr)):
        yield found[2]


def seconds(duration: str) -> float | None:
    """Return the seconds of a duration such as 1h30m; None for one that is not written out."""
    parts = DURATION.findall(duration)
    if "".join(number + unit for number, unit in parts) != duration or not parts:
        return None
    return float(sum(int(number) * SECONDS[unit] for number, unit in parts))


def summed_shares(expr: str) -> Iterator[str]:
    """Yield the series that are shares, by their names, and are summed."""
    bare = QUOTED.sub('""', expr)
    for found in SUM.finditer(bare):
        yield from SHARE.findall(_inside(bare, found.end()))


def matched(expr: str, variable: str) -> Iterator[str]:
    """Yield the operators by which matchers compare a label with a variable alone."""
    name = re.escape(variable)
    for found in re.finditer(rf'(=~|!~|!=|=)\s*"(?:\$\{{{name}(?::\w+)?\}}|\${name})"', expr):
        yield found[1]


def uses(text: str, variable: str) -> bool:
    """Tell whether a text has a variable in it."""
    name = re.escape(variable)
    return re.search(rf"\$\{{{name}\b|\${name}\b|\[\[{name}\b", text) is not None


def _inside(text: str, start: int) -> str:
    """Return what stands between a parenthesis that opened before `start` and its end."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return text[start:place]
    return text[start:]
