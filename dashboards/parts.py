"""A dashboard's parts as the lint looks at them, from whatever JSON there is: what has another shape is a fault."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from dashboards import promql

Json = Mapping[str, Any]

PROVISIONED: Final = Path(__file__).parent / "provisioning" / "datasources.yml"
# Of Prometheus where nothing else is set; a window has to hold two samples even then.
SCRAPE_SECONDS: Final = 60.0
SHOWN: Final = 40  # characters of what has the wrong shape
# As Grafana finds them; `$1` is a group of a regular expression, and no variable.
VARIABLE: Final = re.compile(r"\$\{([a-zA-Z_]\w*)[^{}]*\}|\$([a-zA-Z_]\w*)|\[\[([a-zA-Z_]\w*)(?:[.:]\w+)*\]\]")


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
class Asked:
    """A query: where it stands, in which panel or annotation, its text, and its tree where it can be read."""

    where: str
    holder: Json
    expr: str
    tree: promql.Node | None = None
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard's parts; `strays` are those that are no objects, and `groups` the panels that share a grid."""

    json: Json
    around: Surroundings
    panels: list[Json]
    variables: list[Json]
    annotations: list[Json]
    groups: list[list[Json]]
    queries: list[Asked]
    strays: list[str]


def dashboard(raw: Json, around: Surroundings) -> Dashboard:
    """Take a dashboard apart."""
    strays: list[str] = []

    def objects(value: object, what: str) -> list[Json]:
        if not isinstance(value, list):
            strays.extend([] if value is None else [f"{what}s: {shown(value)} is no list"])
            return []
        strays.extend(f"{what} {shown(item)} is no object" for item in value if not isinstance(item, Mapping))
        return [item for item in value if isinstance(item, Mapping)]

    def flat(panels: list[Json]) -> Iterator[Json]:
        for panel in panels:
            yield panel
            yield from flat(objects(panel.get("panels"), "panel"))

    top = objects(raw.get("panels"), "panel")
    rows = [objects(row.get("panels"), "panel") for row in objects(raw.get("rows"), "row")]
    panels = [*flat([*top, *(panel for row in rows for panel in row)])]
    annotations = objects(at(raw, "annotations", "list"), "annotation")
    return Dashboard(
        raw,
        around,
        panels,
        objects(at(raw, "templating", "list"), "variable"),
        annotations,
        [top, *(found for panel in top if (found := mappings(panel.get("panels"))))],
        [
            *(_asked(panel, expr(t)) for panel in panels for t in objects(panel.get("targets"), "target") if expr(t)),
            # Grafana 10 and later read the annotation's target, those before its own expression.
            *(_asked(a, asked) for a in annotations for asked in (expr(a), expr(at(a, "target"))) if asked),
        ],
        strays,
    )


def _asked(holder: Json, expr: str) -> Asked:
    where = place(holder) if "targets" in holder else named("annotation", holder)
    try:
        return Asked(where, holder, expr, promql.parse(expr))
    except promql.NotPromQLError as error:
        return Asked(where, holder, expr, unreadable=str(error))


def at(value: object, *keys: str) -> Any:  # noqa: ANN401  # JSON
    """Return what stands below keys; None where nothing does."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mappings(value: object) -> list[Json]:
    """Return the objects of a list; none of what is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def text(value: object) -> str:
    """Return a text; nothing for what is none."""
    return value if isinstance(value, str) else ""


def expr(target: object) -> str:
    """Return the PromQL of a target, unless it reckons with the results of others."""
    source = at(target, "datasource")
    return "" if "__expr__" in (source, at(source, "type"), at(source, "uid")) else text(at(target, "expr")).strip()


def kind(variable: Json) -> str:
    """Return what makes a variable's choices; of old a query, unsaid."""
    return text(variable.get("type", "query"))


def whole(value: object) -> int | None:
    """Return a whole number, which JSON may write as 8.0 too; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        return None
    return int(value)


def shown(value: object) -> str:
    """Return JSON, shortened."""
    return json.dumps(value, ensure_ascii=False)[:SHOWN]


def place(panel: Json) -> str:
    """Return what to call a panel."""
    return f"panel {shown(panel.get('id'))}"


def named(kind: str, part: Json) -> str:
    """Return what to call a variable or an annotation."""
    return f"{kind} {text(part.get('name')) or 'without a name'}"


def variables_in(value: str) -> set[str]:
    """Return the variables that a text has in it."""
    return {next(filter(None, found)) for found in VARIABLE.findall(value)}
