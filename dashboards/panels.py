"""The house style: what every panel has to say of itself, and how it looks. The only file that knows grafanalib.

Signatures ask for title, description, unit, thresholds, legend and no-data text, so that none is forgotten. A colour
says a state and nothing else: lines are blue or purple, and red and green come from thresholds and words alone.
"""

import json
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attr
from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards import frame
from dashboards.clean import cleaned
from dashboards.queries import Query
from dashboards.style import LINES, NEUTRAL, SOURCE, TOP, About, Column, Json, Line, Steps, override, steps, target
from dashboards.verdicts import State

Panel = Any  # grafanalib has no types

JOINED: Final = {"byField": "Time", "mode": "outer"}
SCHEMA: Final = 39  # of Grafana 10.4; later ones migrate it


@attr.s
class Modern(core.Panel):  # type: ignore[misc]
    """A panel that grafanalib lacks, or writes for Grafanas of old."""

    kind: str = attr.ib(default="")
    options: Json = attr.ib(factory=dict)
    defaults: Json = attr.ib(factory=dict)
    overrides: list[Json] = attr.ib(factory=list)

    def to_json_data(self) -> Json:
        """Return the panel's JSON."""
        config = {"defaults": self.defaults, "overrides": self.overrides}
        made: Json = self.panel_json({"type": self.kind, "options": self.options, "fieldConfig": config})
        return made


@attr.s
class XYChart(Modern):
    """Points of one field over another, coloured by a third. Grafana 10, whose options differ, leaves out colours."""

    kind: str = attr.ib(default="xychart")
    x: str = attr.ib(default="")
    y: str = attr.ib(default="")
    colour: str = attr.ib(default="")

    def to_json_data(self) -> Json:
        """Return the panel's JSON, with the options of both."""
        fields = {"x": self.x, "y": self.y, "color": self.colour}
        series: Json = {part: {"matcher": {"id": "byName", "options": field}} for part, field in fields.items()}
        series["frame"] = {"matcher": {"id": "byIndex", "options": 0}}
        made = super().to_json_data()
        made["options"] |= {"mapping": "manual", "series": [series]}
        made["options"] |= {"seriesMapping": "auto", "dims": {"frame": 0, "x": self.x, "exclude": [self.colour]}}
        return made


def stat(
    about: About,
    *queries: Query,
    unit: str,
    thresholds: Steps,
    mappings: Sequence[Json] = (),
    background: bool = False,
) -> Panel:
    """Return the present value of each query, large, with its name where it has one."""
    return core.Stat(
        **_common(about, queries),
        format=unit,
        noValue=about.no_data,
        reduceCalc="lastNotNull",
        mappings=list(mappings),
        color={"mode": "thresholds"},
        colorMode="background" if background else "value",
        graphMode="none",
        textMode="value_and_name" if queries[0].legend else "value",
        extraJson={"fieldConfig": {"defaults": {"thresholds": steps(thresholds)}}},
    )


def graph(
    about: About,
    *lines: Line,
    unit: str,
    thresholds: Steps,
    legend: Literal["list", "table"],
    repeat: str | None = None,
) -> Panel:
    """Return lines over time, from zero up; thresholds as lines where there are any."""
    defaults = {"noValue": about.no_data, "min": 0, "thresholds": steps(thresholds)}
    return core.TimeSeries(
        **_common(about, [line.query for line in lines]),
        unit=unit,
        colorMode="fixed",
        lineWidth=2,
        stacking={"mode": "none", "group": "A"},  # without a mode Grafana stacks them
        legendDisplayMode=legend,
        legendCalcs=["lastNotNull", "max"] if legend == "table" else [],
        tooltipMode="multi",
        thresholdsStyleMode="line" if len(thresholds) > 1 else "off",
        overrides=[
            override("byFrameRefID", ref, line.properties(unit, colour))
            for ref, line, colour in zip(string.ascii_uppercase, lines, LINES, strict=False)
        ],
        repeat=core.Repeat("h", repeat, 4) if repeat else core.Repeat(),
        extraJson={"options": {"legend": {"showLegend": True}}, "fieldConfig": {"defaults": defaults}},
    )


def bars(about: About, *queries: Query, unit: str, thresholds: Steps) -> Panel:
    """Return the present value of each series as a bar; blue where thresholds say nothing."""
    colour = {"mode": "thresholds"} if len(thresholds) > 1 else {"mode": "fixed", "fixedColor": LINES[0]}
    return Modern(
        **_common(about, queries),
        kind="bargauge",
        defaults={"unit": unit, "noValue": about.no_data, "color": colour, "thresholds": steps(thresholds)}
        | {"min": 0, "max": TOP.get(unit)},
        options={
            "displayMode": "basic",
            "orientation": "horizontal",
            "showUnfilled": True,
            "valueMode": "text",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    )


def states(about: About, query: Query, *, mappings: Sequence[Json]) -> Panel:
    """Return one band for each series, in the words and colours of its values."""
    return core.StateTimeline(
        **_common(about, [query]),
        mappings=list(mappings),
        colorMode="fixed",  # by thresholds, Grafana shows these in place of the words
        extraJson={
            "options": {"legend": {"showLegend": False}},
            "fieldConfig": {
                "defaults": {
                    "noValue": about.no_data,
                    "unit": "none",
                    "color": {"fixedColor": State.NONE.value},
                    "thresholds": steps(NEUTRAL),
                }
            },
        },
    )


def table(about: About, *queries: Query, columns: Mapping[str, Column], sort: str, descending: bool = False) -> Panel:
    """Return queries joined on the labels that they share; `columns` maps titles to what fills them."""
    fields = [column.field for column in columns.values()]
    hidden = {"Time", "Value", *(f"Value #{ref}" for ref in string.ascii_uppercase[: len(queries)])} - set(fields)
    arranged = {
        "excludeByName": dict.fromkeys(sorted(hidden), True),
        "renameByName": dict(zip(fields, columns, strict=True)),
        "indexByName": {field: place for place, field in enumerate(fields)},
    }
    return Modern(
        **_common(
            about,
            [query.table() for query in queries],
            # Rows are joined where all else is equal, and two queries may differ in time.
            {"id": "filterFieldsByName", "options": {"exclude": {"names": ["Time"]}}},
            {"id": "merge", "options": {}},
            {"id": "organize", "options": arranged},
        ),
        kind="table",
        defaults={"noValue": about.no_data, "custom": {"align": "left"}, "thresholds": steps(NEUTRAL)},
        # An empty cell would say what the empty table says.
        overrides=[override("byName", name, {"noValue": "-", **column.properties}) for name, column in columns.items()],
        options={"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": sort, "desc": descending}]},
    )


def heatmap(about: About, query: Query, *, unit: str) -> Panel:
    """Return a histogram over time; the stronger the colour, the more."""
    return Modern(
        **_common(about, [query]),
        kind="heatmap",
        defaults={"noValue": about.no_data, "unit": "short"},
        options={
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Blues", "steps": 32, "exponent": 0.5, "reverse": False},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "show": True, "yHistogram": True},
            "yAxis": {"unit": unit, "axisPlacement": "left", "reverse": False},
        },
    )


def scatter(about: About, axes: Mapping[str, tuple[Query, str]]) -> Panel:
    """Return points: `x`, `y` and `colour` are queries, each with its unit, joined on their times."""
    return XYChart(
        **_common(about, [query for query, _ in axes.values()], {"id": "joinByField", "options": JOINED}),
        **{part: query.legend for part, (query, _) in axes.items()},
        defaults={
            "noValue": about.no_data,
            "unit": axes["y"][1],
            "min": 0,
            "color": {"mode": "continuous-BlPu"},
            "custom": {"show": "points", "pointSize": {"fixed": 6}, "fillOpacity": 60},
        },
        overrides=[
            override("byName", query.legend, {"unit": unit, "custom.axisLabel": query.legend})
            for query, unit in axes.values()
        ],
        options={
            "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


def text(content: str, **more: bool) -> Panel:
    """Return words, in Markdown."""
    return core.Text(content=content, **more)


def section(title: str) -> Panel:
    """Return the head of what is below."""
    return core.RowPanel(title=title)


def dashboard(uid: str, title: str, description: str, panels: list[Panel], variables: Sequence[str]) -> Json:
    """Return a dashboard of panels that have their places."""
    return _dashboard(
        uid=uid,
        title=title,
        description=description,
        tags=["apc"],
        panels=panels,
        templating=core.Templating([frame.source_variable(), *map(frame.variable, variables)]),
        annotations=core.Annotations(frame.annotations()),
        refresh="30s",
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
    )


def page(uid: str, title: str, content: str) -> Json:
    """Return a dashboard of words alone."""
    panel = text(content)
    panel.gridPos = {"x": 0, "y": 0, "w": 24, "h": 22}
    return _dashboard(uid=uid, title=title, tags=["apc-runbook"], panels=[panel], refresh="")


def _dashboard(**more: Any) -> Json:  # noqa: ANN401  # whatever grafanalib takes
    made = core.Dashboard(
        links=frame.navigation(),
        time=core.Time("now-3h", "now"),
        timezone="browser",
        schemaVersion=SCHEMA,
        editable=False,
        version=1,
        **more,
    )
    plain: Json = json.loads(json.dumps(made.auto_panel_ids().to_json_data(), cls=DashboardEncoder))
    return cleaned(plain)


def _common(about: About, queries: Sequence[Query], *transformations: Json) -> Json:
    """Return what all panels have."""
    return {
        "title": about.title,
        "description": about.description,
        "links": list(about.links),
        "dataSource": SOURCE,
        "transformations": list(transformations),
        "maxDataPoints": None,  # as many as there are pixels
        "targets": [target(ref, query) for ref, query in zip(string.ascii_uppercase, queries, strict=False)],
    }
