"""What surrounds the panels of a dashboard: the data source, variables, annotations and links."""

from typing import Final

from dashboards import queries
from dashboards.queries import Query
from dashboards.style import SOURCE, Json

SOURCE_UID: Final = "apc-prometheus"  # as provisioned
GRAFANA: Final[Json] = {"type": "grafana", "uid": "-- Grafana --"}
ON_TIME_RANGE_CHANGE: Final = 2
ALPHABETICAL: Final = 1
KEEP: Final = "${__url_time_range}&${__all_variables}"  # a link leads to the same time and the same targets


def board(uid: str, title: str) -> Json:
    """Return a panel's link to another dashboard."""
    return {"title": title, "url": f"/d/{uid}?{KEEP}", "targetBlank": False}


ONCALL: Final = board("apc-oncall", "These targets on one screen")
CANARY: Final = board("apc-canary", "What the canary measured")
CAPACITY: Final = board("apc-capacity", "Blocks, evictions and waiting")
FLEET: Final = board("apc-fleet", "All targets in a table")


def runbook(alert: str) -> Json:
    """Return a panel's link to what to do when an alert fires."""
    return {"title": f"What to do: runbook {alert}", "url": f"/d/{runbook_uid(alert)}", "targetBlank": True}


def runbook_uid(alert: str) -> str:
    """Return the uid of the dashboard that shows an alert's runbook."""
    return f"runbook-{alert}"


def source_variable() -> Json:
    """Return the choice of the data source; the provisioned one to begin with."""
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"selected": True, "text": "Prometheus", "value": SOURCE_UID},
        "refresh": 1,
        "regex": "",
        "includeAll": False,
        "multi": False,
        "options": [],
        "hide": 0,
    }


def variable(name: str) -> Json:
    """Return a choice of label values: several, all to begin with, read anew with each change of the time range."""
    label, meaning, query = queries.VARIABLES[name]
    return {
        "name": name,
        "label": label,
        "description": meaning,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "definition": query,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": ON_TIME_RANGE_CHANGE,
        "sort": ALPHABETICAL,
        "regex": "",
        "options": [],
        "hide": 0,
    }


def annotation(name: str, colour: str, query: Query, text: str, *, at_value: bool = False) -> Json:
    """Return marks on every graph where a query has a value; `at_value` if the value is the time, in ms."""
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "iconColor": colour,
        "expr": query.expr,
        "step": queries.ANNOTATION_STEP,
        "titleFormat": name,
        "textFormat": text,
        "tagKeys": "target",
        "useValueForTime": at_value,
        # Grafana 10 and later read these in place of `expr` and `step`.
        "target": {"refId": "Anno", "expr": query.expr, "interval": queries.ANNOTATION_STEP},
    }


def annotations() -> list[Json]:
    """Return what may explain a change: on every dashboard."""
    return [
        {
            "builtIn": 1,
            "datasource": GRAFANA,
            "enable": True,
            "hide": True,
            "iconColor": "blue",
            "name": "Annotations & Alerts",
            "type": "dashboard",
        },
        annotation("Engine restart", "purple", queries.RESTARTS_AT, "{{target}} was started", at_value=True),
        annotation("Settings change", "blue", queries.SETTINGS_CHANGED, "{{target}}: {{dialect}} {{version}}"),
        annotation("Alert", "red", queries.ALERTS_FIRING, "{{alertname}} {{target}}"),
        annotation("Canary failure", "orange", queries.CANARY_FAILED, "{{target}}: {{reason}}"),
    ]


def navigation() -> list[Json]:
    """Return the links at the top: to the other dashboards and to the runbooks."""
    shared = {"type": "dashboards", "keepTime": True, "targetBlank": False, "icon": "external link", "url": ""}
    return [
        shared | {"title": "APC", "tags": ["apc"], "asDropdown": False, "includeVars": True, "tooltip": ""},
        shared | {"title": "Runbooks", "tags": ["apc-runbook"], "asDropdown": True, "includeVars": False},
    ]
