"""What breaks a dashboard after it has left its author's Grafana: a list of faults for any dashboard JSON."""

from collections.abc import Callable, Iterator
from typing import Final

from dashboards.panel_faults import looks, places, shapes, uids
from dashboards.parts import SCRAPE_SECONDS, Dashboard, Json, Surroundings, dashboard, surroundings
from dashboards.query_faults import counters, doubles, metrics, ratios, readable, shares, stacks, windows
from dashboards.source_faults import sources
from dashboards.variable_faults import choices, variables

__all__ = ["SCRAPE_SECONDS", "Surroundings", "lint", "surroundings"]

RULES: Final[tuple[Callable[[Dashboard], Iterator[str]], ...]] = (
    *(shapes, uids, sources, readable, windows, shares, stacks, ratios, counters, metrics, doubles),
    *(variables, choices, looks, places),
)


def lint(json: Json, around: Surroundings) -> list[str]:
    """Return the faults, each once and with the place where it is."""
    parts = dashboard(json, around)
    return list(dict.fromkeys(fault for rule in RULES for fault in rule(parts)))
