"""`apc-fleet`: every target a row, and what they are together."""

from typing import Any, Final

from dashboards import queries as q
from dashboards.frame import CANARY, ONCALL, runbook
from dashboards.layout import rows
from dashboards.panels import Panel, bars, dashboard, stat, states, table
from dashboards.shared import HIT_RATE_STATE, NO_REQUESTS, NO_TARGET, NO_TRAFFIC, NO_VERDICT, USAGE_STATE, saved
from dashboards.style import NEUTRAL, VERDICTS, About, Column, Json, steps
from dashboards.verdicts import State

COLOURED: Final = {"custom.cellOptions": {"type": "color-text"}}
UNITS: Final[dict[str, dict[str, Any]]] = {
    "Verdict": {"mappings": VERDICTS, "unit": "none", **COLOURED},
    "Users' hit rate": {"unit": "percentunit", "decimals": 1, "thresholds": steps(HIT_RATE_STATE), **COLOURED},
    "Last day": {"unit": "percentunit", "decimals": 1},
    "Users' tokens/s": {"unit": "short", "decimals": 0},
    "TTFT p50": {"unit": "s"},
    "TTFT p95": {"unit": "s"},
    "Cold / warm": {"unit": "short", "decimals": 1},
    "Block size": {"unit": "locale"},
    "KV usage": {"unit": "percentunit", "decimals": 0, "thresholds": steps(USAGE_STATE), **COLOURED},
}


def build() -> Json:
    """Return the dashboard."""
    panels = rows(
        ("All chosen targets together", 4, [(6, _hit_rate()), (6, _all_hit_rate()), (6, _answering()), (6, saved())]),
        ("Each target", 11, [(24, _targets())]),
        ("", 8, [(9, _verdicts()), (5, _models()), (5, _tokens()), (5, _gaps())]),
    )
    about = "Every engine and gateway a row; the figures above weigh each target by its tokens."
    return dashboard("apc-fleet", "APC fleet", about, panels, ("target", "model"))


def _hit_rate() -> Panel:
    return stat(
        About(
            "Users' hit rate",
            "Tokens found over tokens looked up, of all chosen targets and without the canary's: a target weighs as "
            "much as it has traffic. Normal: as yesterday.",
            NO_TRAFFIC,
            [ONCALL, runbook("ApcHitRateCollapsed")],
        ),
        q.users_hit_rate(legend="").now(),
        unit="percentunit",
        thresholds=HIT_RATE_STATE,
    )


def _all_hit_rate() -> Panel:
    return stat(
        About(
            "Hit rate with the canary's requests",
            "The same of all requests. Far above the users': the canary hits and they do not.",
            NO_REQUESTS,
            [ONCALL, runbook("ApcHitRateCollapsed")],
        ),
        q.ALL_HIT_RATE.now(""),
        unit="percentunit",
        thresholds=HIT_RATE_STATE,
    )


def _answering() -> Panel:
    return stat(
        About(
            "Engines",
            "Engines whose metrics are read, and all in the settings. Normal: the same number.",
            NO_TARGET,
            [ONCALL, runbook("ApcEngineDown")],
        ),
        q.ANSWERING.now(),
        q.KNOWN.now(),
        unit="locale",
        thresholds=((None, State.BAD), (1, State.NONE)),
    )


def _targets() -> Panel:
    letters = {title: f"Value #{chr(ord('A') + place)}" for place, title in enumerate(q.FLEET)}
    chosen = "var-target=${__value.raw:percentencode}"  # a name may hold what parts a URL
    to_target = {"title": "On call: this target", "url": f"/d/apc-oncall?{chosen}&${{__url_time_range}}"}
    return table(
        About(
            "Targets",
            "One row for each engine and gateway; a click on a name opens its screen. Empty is not zero: no traffic, "
            "or an engine that does not tell. Normal: Reuse works in every row. The worst come first.",
            "No target is known: are exporter and probe up?",
            [ONCALL, runbook("ApcHitRateZero")],
        ),
        *q.FLEET.values(),
        q.VERSIONS,
        columns={
            "Target": Column("target", {"links": [to_target]}),
            **{title: Column(field, UNITS[title]) for title, field in letters.items()},
            "Version": Column("version", {}),
            "Dialect": Column("dialect", {}),
        },
        sort="Verdict",
        descending=True,
    )


def _verdicts() -> Panel:
    return states(
        About(
            "Verdicts",
            "The worst verdict of each target over time. Normal: green bands. The same colour in all rows at once: "
            "the cause is common to them, such as a deployment.",
            NO_VERDICT,
            [CANARY, runbook("ApcCanaryNoReuse")],
        ),
        q.VERDICT,
        mappings=VERDICTS,
    )


def _models() -> Panel:
    return bars(
        About(
            "Users' hit rate by model",
            "A model's targets together, weighed by their tokens. Normal: steady for a model; two models need not be "
            "alike.",
            NO_TRAFFIC,
            [ONCALL, runbook("ApcHitRateCollapsed")],
        ),
        q.MODEL_HIT_RATE.now(),
        unit="percentunit",
        thresholds=NEUTRAL,
    )


def _tokens() -> Panel:
    return bars(
        About(
            "Prompt tokens/s by target",
            "Who has the traffic, the canary's among it. Normal: alike behind one balancer.",
            NO_REQUESTS,
            [ONCALL, runbook("ApcHitRateCollapsed")],
        ),
        q.TARGET_TOKENS.now(),
        unit="short",
        thresholds=NEUTRAL,
    )


def _gaps() -> Panel:
    return table(
        About(
            "What engines do not tell",
            "Fields that an engine of that version should have and has not, and faults of values that cannot be true "
            "and are left out. Normal: none. What rests on them is blank elsewhere: a new release may have renamed a "
            "field.",
            "Nothing is missing, as far as engines answer",
            [ONCALL, runbook("ApcFieldMissing")],
        ),
        q.GAPS,
        columns={"Target": Column("target", {}), "Missing": Column("field", {}), "Fault": Column("fault", {})},
        sort="Target",
    )
