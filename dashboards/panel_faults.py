"""What panels go by, how they look, and where they lie."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from dashboards.parts import Dashboard, Json, at, mappings, place, shown, text, whole

UID: Final = re.compile(r"[\w-]{1,40}", re.ASCII)  # others Grafana refuses
WIDTH: Final = 24
ROWLESS: Final = 16  # from this schema on Grafana takes no notice of `rows`
ANGULAR: Final = frozenset({"graph", "singlestat", "table-old", "grafana-piechart-panel", "grafana-worldmap-panel"})
WITH_UNIT: Final = frozenset(
    {"barchart", "bargauge", "gauge", "histogram", "piechart", "stat", "timeseries", "trend", "xychart"}
)
CORE: Final = WITH_UNIT | frozenset(
    {"alertlist", "annolist", "candlestick", "canvas", "dashlist", "datagrid", "flamegraph", "geomap", "heatmap"}
    | {"logs", "news", "nodeGraph", "row", "state-timeline", "status-history", "table", "text", "traces"}
)


def shapes(dashboard: Dashboard) -> Iterator[str]:
    """Look for what has not the shape of a dashboard."""
    yield from dashboard.strays
    if at(dashboard.json, "spec", "elements") is not None:
        yield "dashboard in schema v2, which Grafana does not provision from files"
    if dashboard.json.get("rows") and (whole(dashboard.json.get("schemaVersion")) or 0) >= ROWLESS:
        yield f"dashboard rows are not shown from schemaVersion {ROWLESS} on"


def uids(dashboard: Dashboard) -> Iterator[str]:
    """Look for what links and views go by: a fixed uid, and ids from 1 up, each once."""
    uid = dashboard.json.get("uid")
    if not uid:
        yield "dashboard uid null"
    elif not UID.fullmatch(text(uid)):
        yield f"dashboard uid {shown(uid)}: Grafana takes up to 40 letters, digits, - and _"
    ids = Counter(shown(panel.get("id")) for panel in dashboard.panels)
    for panel in dashboard.panels:
        number, name = panel.get("id"), shown(panel.get("id"))
        if number is None:
            yield "panel id null"
        elif whole(number) is None:
            yield f"panel id {name} is no whole number"
        elif number < 1:
            yield f"panel id {name}"
        if number is not None and ids[name] > 1:
            yield f"panel id duplicate: {name}, {ids[name]} times"


def looks(dashboard: Dashboard) -> Iterator[str]:
    """Look for panels that Grafana does not show by itself, and for numbers without a unit."""
    for panel in dashboard.panels:
        if panel.get("libraryPanel"):
            continue  # what it looks like stands elsewhere
        kind, where = text(panel.get("type")), place(panel)
        overrides = mappings(at(panel, "fieldConfig", "overrides"))
        units = [p for o in overrides for p in mappings(o.get("properties")) if p.get("id") == "unit"]
        if kind in ANGULAR:
            yield f"{where}: {kind} is an Angular panel, which Grafana 12 does not show"
        elif kind not in CORE:
            yield f"{where}: {f'{kind} needs a plugin' if kind else 'no type'}"
        if kind in WITH_UNIT and not at(panel, "fieldConfig", "defaults", "unit") and not units:
            yield f"{where}: no unit"
        if kind == "heatmap" and not at(panel, "options", "yAxis", "unit"):
            yield f"{where}: no unit"


def places(dashboard: Dashboard) -> Iterator[str]:
    """Look for panels that lie on another or beyond the edge."""
    for group in dashboard.groups:
        earlier: list[tuple[Json, tuple[int, int, int, int]]] = []
        for panel in group:
            grid = panel.get("gridPos") or {}
            edges = [(key, at(grid, key)) for key in "xywh"]
            wrong = [f"{key} {shown(value)}" for key, value in edges if value is not None and whole(value) is None]
            if wrong or not isinstance(grid, dict):
                yield f"{place(panel)}: gridPos {', '.join(wrong) or shown(grid)} is no whole number"
                continue
            x, y, width, height = (whole(value) or 0 for _, value in edges)
            if x < 0 or x + width > WIDTH:
                yield f"{place(panel)}: beyond column {WIDTH if x >= 0 else 0}"
            for other, (left, top, wide, high) in earlier:
                if x < left + wide and left < x + width and y < top + high and top < y + height:
                    yield f"{place(panel)}: on {place(other)}"
            earlier.append((panel, (x, y, width, height)))
