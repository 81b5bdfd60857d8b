"""grafanalib's JSON, less what it writes for Grafanas of old."""

from typing import Any, Final

from dashboards.style import Json

OBSOLETE: Final = frozenset(
    {"__inputs", "error", "hideControls", "hideTimeOverride", "rows", "sharedCrosshair", "style"}
)
# Without a version, or one below 11.1, Grafana takes an XY chart's options for those of 10 and rewrites them.
PLUGIN_VERSION: Final = "11.2.0"


def cleaned(dashboard: Json) -> Json:
    """Return a dashboard without what is obsolete or says nothing."""
    kept: Json = _without(dashboard)
    for panel in kept["panels"]:
        panel["pluginVersion"] = PLUGIN_VERSION
    return kept


def _without(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Drop keys; the value of a threshold may be null, which is the lowest."""
    if isinstance(value, list):
        return [_without(item) for item in value]
    if isinstance(value, dict):
        return {k: _without(v) for k, v in value.items() if k not in OBSOLETE and (v is not None or k == "value")}
    return value
