"""Exposition text -> the samples that `engine.py` names. Everything else in the text is passed over.

An engine's answer has hundreds of series of which we want a third, and one scrape may ask hundreds of engines:
hence one pass, and labels that repeat from scrape to scrape are taken apart once. A wanted line that breaks
the format fails the whole text, since half of a broken answer is a wrong number.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from exporter.engine import Route, Unit, routes

_NAME: Final = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)")
# labels, value, then an optional timestamp and an optional OpenMetrics exemplar
_REST: Final = re.compile(
    r'[ \t]*(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]*(?<=[ \t}])'
    r"([^ \t\r#]+)(?:[ \t]+-?\d+(?:\.\d+)?)?[ \t]*(?:#[ \t]*\{.*)?\r?"
)
_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_VALUE: Final = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI]nf|[nN]a[nN])")
_ESCAPE: Final = re.compile(r"\\(.)")


class ParseError(ValueError):
    """The text is no well-formed exposition; the message names the line."""


class Labels(NamedTuple):
    """The labels of a sample, those we key by apart from the rest."""

    model: str
    engine: str | None
    le: str
    rest: tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One wanted sample and the field that it feeds."""

    route: Route
    labels: Labels
    value: float


def parse(text: str) -> list[Sample]:
    """Return the wanted samples in the order of the text.

    Raises ParseError on a wanted line that is malformed and on a text that ends within a line.
    """
    if text and not text.endswith("\n"):
        raise ParseError("the text ends within a line: it was cut off")
    samples: list[Sample] = []
    for number, line in enumerate(text.split("\n"), 1):
        name = _NAME.match(line)
        wanted = routes(name[1]) if name else ()
        if not name or not wanted:
            continue
        rest = _REST.fullmatch(line, name.end())
        try:
            if not rest or not _VALUE.fullmatch(rest[2]):
                raise ParseError(f"no labels and value after {name[1]!r}")
            labels, value = _labels(rest[1] or ""), float(rest[2])
        except ParseError as error:
            raise ParseError(f"line {number}: {error}") from None
        samples.extend(Sample(route, labels, value) for route in wanted)
    return samples


def stated_unit(text: str, name: str) -> Unit:
    """Return the unit that the HELP line of an exposed counter states; `Unit.ONE` where it states none."""
    match = re.search(rf"^# HELP {re.escape(name)}(?:_total)? (.*)$", text, re.MULTILINE)
    stated = match[1].lower() if match else ""
    return Unit.TOKENS if "token" in stated else Unit.BLOCKS if "block" in stated else Unit.ONE


@lru_cache(maxsize=65_536)
def _labels(text: str) -> Labels:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if not match or match[1] in found:
            raise ParseError(f"the labels are malformed at {text[position : position + 40]!r}")
        found[match[1]] = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        position = match.end()
    return Labels(
        found.pop("model_name", ""),
        found.pop("engine", None) or found.pop("dp_rank", None),
        found.pop("le", ""),
        tuple(sorted(found.items())),
    )
