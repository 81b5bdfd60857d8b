"""What panels are said with: lines, thresholds, words and overrides, as Grafana takes them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dashboards.queries import Kind, Query
from dashboards.verdicts import WORDS, State

Json = dict[str, Any]
Steps = Sequence[tuple[float | None, State]]

SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
NEUTRAL: Final[Steps] = ((None, State.NONE),)
# No state has these colours.
LINES: Final = ("blue", "purple", "super-light-blue", "super-light-purple", "dark-blue", "dark-purple")
# Where the axis of a unit ends; others end where their values do.
TOP: Final = {"percentunit": 1}
DASHED: Final[Json] = {"fill": "dash", "dash": [8, 6]}


@dataclass(frozen=True, slots=True)
class About:
    """What every panel says of itself.

    The description tells what it shows, what is normal and what to do; `no_data` stands where there is nothing to show;
    the links lead to a runbook or one dashboard deeper.
    """

    title: str
    description: str
    no_data: str
    links: Sequence[Json]


@dataclass(frozen=True, slots=True)
class Line:
    """A query in a graph: its colour, dashed for a yardstick, and its unit where that is one for the right axis."""

    query: Query
    colour: str = ""
    dashed: bool = False
    right: str = ""

    def properties(self, unit: str, colour: str) -> Json:
        """Return what makes it look so, in a graph of that unit and where no colour is chosen."""
        made: Json = {"color": {"mode": "fixed", "fixedColor": self.colour or colour}}
        top = TOP.get(self.right or unit)
        if top:
            made["max"] = top
        if self.dashed:
            made["custom.lineStyle"] = DASHED
        if self.right:
            made |= {"unit": self.right, "custom.axisPlacement": "right"}
        return made


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the field that fills it, and its properties, unit first of all."""

    field: str
    properties: Mapping[str, Any]


def target(ref: str, query: Query) -> Json:
    """Return a query of a panel under its letter."""
    now = query.kind in {Kind.NOW, Kind.TABLE}
    return {
        "refId": ref,
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "format": query.kind.value if query.kind in {Kind.TABLE, Kind.HEATMAP} else "time_series",
        "instant": now,
        "range": not now,
        "exemplar": False,
    }


def steps(thresholds: Steps) -> Json:
    """Return thresholds: the state from each value up."""
    return {"mode": "absolute", "steps": [{"value": value, "color": state.value} for value, state in thresholds]}


def words(table: Iterable[tuple[float | str, State, str]]) -> list[Json]:
    """Return a mapping of values to words and colours."""
    options = {
        str(value): {"text": text, "color": state.value, "index": index}
        for index, (value, state, text) in enumerate(table)
    }
    return [{"type": "value", "options": options}]


def override(matcher: str, name: str, properties: Mapping[str, Any]) -> Json:
    """Return properties of the fields that a matcher finds."""
    return {
        "matcher": {"id": matcher, "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


VERDICTS: Final = words((number, state, text) for number, (_, state, text) in enumerate(WORDS))
