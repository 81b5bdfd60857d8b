"""What breaks a dashboard after it has left its author's Grafana: a list of faults for any dashboard JSON."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from dashboards import names, promql

Json = Mapping[str, Any]

PROVISIONED: Final = Path(__file__).parent / "provisioning" / "datasources.yml"
# Of Prometheus where nothing else is set; a window has to hold two samples even then.
SCRAPE_SECONDS: Final = 60.0
WIDTH: Final = 24
ON_TIME_RANGE_CHANGE: Final = 2
BUILT_IN_SOURCES: Final = frozenset({"grafana", "-- Grafana --", "-- Mixed --", "-- Dashboard --"})
ANGULAR: Final = frozenset({"graph", "singlestat", "table-old", "grafana-piechart-panel", "grafana-worldmap-panel"})
WITH_UNIT: Final = frozenset(
    {"barchart", "bargauge", "gauge", "histogram", "piechart", "stat", "timeseries", "trend", "xychart"}
)
CORE: Final = WITH_UNIT | frozenset(
    {
        "alertlist",
        "annolist",
        "candlestick",
        "canvas",
        "dashlist",
        "datagrid",
        "flamegraph",
        "geomap",
        "heatmap",
        "logs",
    }
    | {"news", "nodeGraph", "row", "state-timeline", "status-history", "table", "text", "traces"}
)
PRODUCT_METRIC: Final = re.compile(r"\b(apc|vllm|sglang)[_:]")
LABEL_VALUES: Final = re.compile(r"label_values\((.*)\)\s*$")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a dashboard will find where it goes: data sources by uid or name, and the scrape interval in seconds."""

    sources: frozenset[str]
    scrape_seconds: float = SCRAPE_SECONDS


def surroundings(provisioned: Path = PROVISIONED, scrape_seconds: float = SCRAPE_SECONDS) -> Surroundings:
    """Read the data sources of a provisioning file."""
    sources = yaml.safe_load(provisioned.read_text(encoding="utf-8"))["datasources"]
    return Surroundings(frozenset(s[key] for s in sources for key in ("uid", "name") if key in s), scrape_seconds)


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard's parts, as the rules look at them."""

    json: Json
    around: Surroundings
    panels: list[Json] = field(default_factory=list)
    variables: list[Json] = field(default_factory=list)
    annotations: list[Json] = field(default_factory=list)

    def expressions(self) -> Iterator[tuple[str, str]]:
        """Yield where each query stands, and the query."""
        for panel in self.panels:
            for target in panel.get("targets") or []:
                yield _place(panel), str(target.get("expr") or "")
        for annotation in self.annotations:
            yield f"annotation {annotation.get('name')}", str(annotation.get("expr") or "")

    def sources(self) -> Iterator[tuple[str, Any]]:
        """Yield where a data source is named, and its name; nobody needs one who asks nothing."""
        for panel in self.panels:
            if panel.get("targets"):
                yield _place(panel), panel.get("datasource")
            for target in panel.get("targets") or []:
                if target.get("datasource"):
                    yield _place(panel), target["datasource"]
        for variable in self.variables:
            if variable.get("type", "query") == "query":
                yield f"variable {variable.get('name')}", variable.get("datasource")
        for annotation in self.annotations:
            yield f"annotation {annotation.get('name')}", annotation.get("datasource")


def lint(dashboard: Json, around: Surroundings) -> list[str]:
    """Return the faults, each with the place where it is."""
    parts = Dashboard(
        dashboard,
        around,
        [*_flat(dashboard.get("panels") or [])],
        list((dashboard.get("templating") or {}).get("list") or []),
        list((dashboard.get("annotations") or {}).get("list") or []),
    )
    return [fault for rule in RULES for fault in rule(parts)]


def _flat(panels: Iterable[Json]) -> Iterator[Json]:
    """Yield panels and those that collapsed rows hold."""
    for panel in panels:
        yield panel
        yield from _flat(panel.get("panels") or [])


def uids(dashboard: Dashboard) -> Iterator[str]:
    """Look for what links and views go by: a fixed uid, and ids from 1 up, each once."""
    if not dashboard.json.get("uid"):
        yield "dashboard uid null"
    ids = Counter(panel.get("id") for panel in dashboard.panels)
    for number, times in ids.items():
        if number is None:
            yield "panel id null"
            continue
        if number < 1:
            yield f"panel id {number}"
        if times > 1:
            yield f"panel id duplicate: {number}, {times} times"


def sources(dashboard: Dashboard) -> Iterator[str]:
    """Look for data sources that are neither provisioned nor a variable that starts with one that is."""
    starts = {
        v["name"]: (v.get("current") or {}).get("value") for v in dashboard.variables if v.get("type") == "datasource"
    }
    for name, value in starts.items():
        if value not in dashboard.around.sources:
            yield f"variable {name}: starts with {value}, which is not provisioned"
    for where, source in dashboard.sources():
        uid = source.get("uid") if isinstance(source, Mapping) else source
        chosen = re.fullmatch(r"\$\{?(\w+)\}?", str(uid))
        if uid is None:
            yield f"{where}: no datasource"
        elif chosen and chosen[1] not in starts:
            yield f"{where}: datasource {uid}"
        elif not chosen and uid not in dashboard.around.sources | BUILT_IN_SOURCES:
            yield f"{where}: datasource uid {uid} not provisioned"


def windows(dashboard: Dashboard) -> Iterator[str]:
    """Look for rates over windows that may hold fewer than two samples, so that they are blank when zoomed in."""
    least = 2 * dashboard.around.scrape_seconds
    for where, expr in dashboard.expressions():
        for window in promql.windows(expr):
            length = promql.seconds(window)
            if re.fullmatch(r"\$\{?__interval(_ms)?\}?", window):
                yield f"{where}: $__interval in rate; take $__rate_interval"
            elif length is not None and length < least:
                yield f"{where}: {window} < 2 x {dashboard.around.scrape_seconds:g}s"


def shares(dashboard: Dashboard) -> Iterator[str]:
    """Look for sums of shares: two caches that are 40 % full are not 80 % full."""
    for where, expr in dashboard.expressions():
        for name in promql.summed_shares(expr):
            yield f"{where}: sum() over *_perc, *_ratio, *_rate: {name}; sum both parts, then divide"


def metrics(dashboard: Dashboard) -> Iterator[str]:
    """Look for names of this project that do not exist: they show nothing, without an error."""
    for where, expr in dashboard.expressions():
        for name in names.unknown(expr):
            yield f"{where}: {name} is neither declared nor recorded"


def variables(dashboard: Dashboard) -> Iterator[str]:
    """Look for choices that go stale when targets come and go."""
    chosen = [v for v in dashboard.variables if v.get("type", "query") == "query"]
    for variable in chosen:
        name, text = variable["name"], _query(variable)
        yield from _choice(variable)
        labels = LABEL_VALUES.search(text)
        if labels and not PRODUCT_METRIC.search(labels[1].rpartition(",")[0]):
            yield f"variable {name}: label_values without a product metric"
        others = [other["name"] for other in chosen if other is not variable]
        yield from (f"variable {name} chained on {other}" for other in others if promql.uses(text, other))
        for where, expr in dashboard.expressions():
            if "=" in promql.matched(expr, name):
                yield f"{where}: {name} used with = instead of =~"


def _choice(variable: Json) -> Iterator[str]:
    """Look whether all values are the default, as an expression that holds tomorrow too."""
    name = variable["name"]
    if not variable.get("includeAll"):
        yield f"variable {name}: includeAll false"
        return
    if variable.get("allValue") != ".*":
        yield f"variable {name}: allValue is not .*"
    if (variable.get("current") or {}).get("value") not in (["$__all"], "$__all"):
        yield f"variable {name}: All is not the default"
    if variable.get("refresh") != ON_TIME_RANGE_CHANGE:
        yield f"variable {name}: not read anew with the time range"


def looks(dashboard: Dashboard) -> Iterator[str]:
    """Look for panels that Grafana does not show by itself, and for numbers without a unit."""
    for panel in dashboard.panels:
        kind, where = panel.get("type"), _place(panel)
        config = panel.get("fieldConfig") or {}
        units = [p for o in config.get("overrides") or [] for p in o.get("properties") or [] if p.get("id") == "unit"]
        if kind in ANGULAR:
            yield f"{where}: {kind} is an Angular panel, which Grafana 12 does not show"
        elif kind not in CORE:
            yield f"{where}: {f'{kind} needs a plugin' if kind else 'no type'}"
        if kind in WITH_UNIT and not (config.get("defaults") or {}).get("unit") and not units:
            yield f"{where}: no unit"
        if kind == "heatmap" and not ((panel.get("options") or {}).get("yAxis") or {}).get("unit"):
            yield f"{where}: no unit"


def places(dashboard: Dashboard) -> Iterator[str]:
    """Look for panels that lie on another or beyond the edge."""
    taken: dict[tuple[int, int], Any] = {}
    for panel in dashboard.json.get("panels") or []:
        at = panel.get("gridPos") or {"x": 0, "y": 0, "w": 0, "h": 0}
        if at["x"] + at["w"] > WIDTH:
            yield f"{_place(panel)}: beyond column {WIDTH}"
        cells = [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        below = {taken[cell] for cell in cells if cell in taken}
        yield from (f"{_place(panel)}: on panel {other}" for other in sorted(below, key=str))
        taken |= dict.fromkeys(cells, panel.get("id"))


def _place(panel: Json) -> str:
    number = panel.get("id")
    return f"panel {'null' if number is None else number}"


def _query(variable: Json) -> str:
    query = variable.get("query") or ""
    return str(query.get("query") or "") if isinstance(query, Mapping) else str(query)


RULES: Final[tuple[Callable[[Dashboard], Iterator[str]], ...]] = (
    uids, sources, windows, shares, metrics, variables, looks, places,
)  # fmt: skip
