"""Exposition text -> the samples that `engine.py` names. Everything else in the text is passed over.

An engine's answer has hundreds of series of which we want a third, and one scrape may ask hundreds of engines.
Name and labels of a series repeat from scrape to scrape, so they are taken apart once and remembered. A wanted
line that breaks the format fails the whole text, since half of a broken answer is a wrong number.
"""

import math
import re
from functools import lru_cache
from typing import Final, NamedTuple

from exporter.engine import Route, Unit, routes

OPENMETRICS_END: Final = "# EOF"  # needs no line feed after it
_NAME: Final = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:.]*)")
_NAME_WITHIN: Final = re.compile(r'[ \t]*\{[ \t]*"([^"\\{}]*)"[ \t]*(?:,|(?=\}))')  # as UTF-8 names are written
_LABELS: Final = re.compile(r'[ \t]*(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]*')
_LABEL: Final = re.compile(r'[ \t]*("?)([a-zA-Z_][a-zA-Z0-9_.]*)\1[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPE: Final = re.compile(r"\\(.)")
# a value, then an optional timestamp and an optional OpenMetrics exemplar
_TAIL: Final = re.compile(r"([^ \t\r#]+)(?:[ \t]+-?\d+(?:\.\d+)?)?[ \t]*(?:#[ \t]*\{.*)?\r?")


class ParseError(ValueError):
    """The text is no well-formed exposition; the message names the line."""


class Labels(NamedTuple):
    """The labels of a sample, those we key by apart from the rest."""

    model: str
    engine: str | None
    le: float  # NaN where it is absent or no number
    rest: tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One wanted sample and the field that it feeds."""

    route: Route
    labels: Labels
    value: float


class _Series(NamedTuple):
    """A wanted series: its routes and labels, and where in the text its value starts."""

    routes: tuple[Route, ...]
    labels: Labels
    end: int


def parse(text: str, *, every_bound: bool = False) -> list[Sample]:
    """Return the wanted samples in the order of the text, buckets at the bounds that we pass on or at all of them.

    Raises ParseError on a wanted line that is malformed and on a text that ends within a line.
    """
    if text and not text.endswith("\n") and text.rpartition("\n")[2] != OPENMETRICS_END:
        raise ParseError("no line feed after its last line: it was cut off; end a file of your own with one")
    read = _every_series if every_bound else _series
    samples: list[Sample] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line[:1] == "#":
            continue
        head, _, value = line.rpartition(" ")  # all there is to most lines
        try:
            series = read(head or line)
            if series is None:
                continue
            if series.end < len(head) or not head:
                series, value = _unusual(line, read(line))
            number_value = _number(value)
        except ParseError as error:
            raise ParseError(f"line {number}: {error}") from None
        samples += [Sample(route, series.labels, number_value) for route in series.routes]
    return samples


def stated_unit(text: str, name: str) -> Unit:
    """Return the unit that the HELP line of an exposed counter states; `Unit.ONE` where it states none."""
    match = re.search(rf'^# HELP "?{re.escape(name)}(?:_total)?"? (.*)$', text, re.MULTILINE)
    stated = match[1].lower() if match else ""
    return Unit.TOKENS if "token" in stated else Unit.BLOCKS if "block" in stated else Unit.ONE


@lru_cache(maxsize=65_536)
def _every_series(text: str) -> _Series | None:
    """Read the name and labels that a text starts with; None where we do not want that name."""
    within = _NAME_WITHIN.match(text)
    if within:
        plain = f"{within[1]}{{{text[within.end() :]}"
        series = _every_series(plain)
        return series and series._replace(end=series.end + len(text) - len(plain))
    name = _NAME.match(text)
    wanted = routes(name[1]) if name else ()
    if not name or not wanted:
        return None
    match = _LABELS.match(text, name.end())
    assert match, "it matches nothing as well"
    return _Series(wanted, _labels(match[1] or ""), match.end())


@lru_cache(maxsize=65_536)
def _series(text: str) -> _Series | None:
    """Do the same; None also for a bucket at a bound that is not passed on."""
    series = _every_series(text)
    if series and series.routes[0].part == "bucket" and not series.routes[0].field.passes(series.labels.le):
        return None
    return series


def _unusual(line: str, series: _Series | None) -> tuple[_Series, str]:
    """Read a wanted line with a timestamp, an exemplar, tabs or a carriage return."""
    tail = _TAIL.fullmatch(line, series.end) if series else None
    if not series or not tail or line[series.end - 1] not in " \t}":
        raise ParseError(f"no labels and value in {line[:60]!r}")
    return series, tail[1]


def _number(text: str) -> float:
    """Read a value; Python's own reading takes more than the format allows."""
    try:
        if "_" not in text and text.isascii():
            return float(text)
    except ValueError:
        pass
    raise ParseError(f"{text[:40]!r} is no number")


def _labels(text: str) -> Labels:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if not match or match[2] in found:
            raise ParseError(f"the labels are malformed at {text[position : position + 40]!r}")
        found[match[2]] = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[3])
        position = match.end()
    return Labels(
        found.pop("model_name", ""),
        found.pop("engine", None) or found.pop("dp_rank", None),
        _bound(found.pop("le", "")),
        tuple(sorted(found.items())),
    )


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
