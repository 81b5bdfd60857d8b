"""Which data sources a dashboard names, and which of them it will not find."""

from collections.abc import Iterator
from typing import Any, Final

from dashboards.parts import Dashboard, Json, at, kind, mappings, named, place, shown, text, variables_in

BUILT_IN: Final = frozenset({"grafana", "-- Grafana --", "-- Mixed --", "-- Dashboard --", "__expr__"})
MIXED: Final = "-- Mixed --"
# Variables that ask a data source.
ASKING: Final = frozenset({"query", "adhoc", "groupby"})


def sources(dashboard: Dashboard) -> Iterator[str]:
    """Look for data sources that are neither provisioned nor a variable that starts with one that is."""
    starts = {text(v.get("name")): _first(v) for v in dashboard.variables if kind(v) == "datasource"}
    known = dashboard.around.sources
    for name, values in starts.items():
        for value in values:
            if not _found(value, known):
                yield f"variable {name}: starts with {value}, which is not provisioned"
    for where, source in _named(dashboard):
        uid = _uid(source)
        chosen = variables_in(uid) if isinstance(uid, str) else set()
        if uid is None or uid == "":
            yield f"{where}: no datasource"
        elif chosen - set(starts):
            yield f"{where}: datasource {uid}"
        elif not chosen and not _found(uid, known | BUILT_IN):
            yield f"{where}: datasource uid {uid if isinstance(uid, str) else shown(uid)} not provisioned"


def _first(variable: Json) -> list[Any]:
    """Return what a variable starts with; several may be chosen."""
    value = at(variable, "current", "value")
    return value if isinstance(value, list) else [value]


def _found(uid: object, known: frozenset[str]) -> bool:
    return isinstance(uid, str) and uid in known


def _uid(source: object) -> Any:  # noqa: ANN401  # JSON
    """Return how a data source is named: by its uid, of old by its name, and built-in ones by their type."""
    if at(source, "type") == "__expr__":
        return "__expr__"
    return at(source, "uid") if isinstance(source, dict) else source


def _named(dashboard: Dashboard) -> Iterator[tuple[str, Any]]:
    """Yield where a data source is named, and its name; nobody needs one who asks nothing."""
    for panel in dashboard.panels:
        source, targets = panel.get("datasource"), mappings(panel.get("targets"))
        if targets or source:
            yield place(panel), source
        for target in targets:
            if target.get("datasource") or _uid(source) == MIXED:
                yield place(panel), target.get("datasource")
    for variable in dashboard.variables:
        if kind(variable) in ASKING:
            yield named("variable", variable), variable.get("datasource")
    for annotation in dashboard.annotations:
        if annotation.get("datasource") or not annotation.get("builtIn"):
            yield named("annotation", annotation), annotation.get("datasource")
