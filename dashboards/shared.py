"""Panels that stand on more than one dashboard."""

from typing import Final

from dashboards import queries as q
from dashboards.frame import board, runbook
from dashboards.panels import Panel, graph, stat
from dashboards.style import NEUTRAL, About, Json, Line, Steps
from dashboards.verdicts import State

HIT_RATE_STATE: Final[Steps] = ((None, State.BAD), (0.01, State.NONE))
USAGE_STATE: Final[Steps] = ((None, State.GOOD), (0.8, State.WARN), (0.95, State.BAD))
ANY_IS_BAD: Final[Steps] = ((None, State.GOOD), (0.001, State.WARN))

# What stands where there is nothing to show: what that means, since it is not zero.
NO_TRAFFIC: Final = "No traffic of users, or none that the engine counts"
NO_REQUESTS: Final = "No requests, or none that the engine counts"
NO_ENGINE: Final = "No engine answers"
NO_TARGET: Final = "No engine among these, or the exporter is down"
NO_CANARY: Final = "The canary has measured nothing"
NO_VERDICT: Final = "No verdict: the probe is down, or has not ended its first cycle"
NO_EVICTIONS: Final = "Not counted: needs --kv-cache-metrics"


def ttft_against_hit_rate(deeper: Json) -> Panel:
    """Return the time to first token and the hit rate over one time, each on an axis of its own."""
    return graph(
        About(
            "TTFT against hit rate, over time",
            "The median wait for the first token (left) and the users' hit rate (right). Normal: one goes up when the "
            "other goes down, and the median stays between the two dashed lines, which are what the canary waits for "
            "a cached and for an uncached prompt. A median that rises while the hit rate does not fall is no matter "
            "of prefix caching: look at the queue.",
            NO_REQUESTS,
            [deeper],
        ),
        Line(q.ttft(0.5, "TTFT p50")),
        Line(q.users_hit_rate(legend="users' hit rate"), "purple", right="percentunit"),
        Line(q.WARM, "super-light-blue", dashed=True),
        Line(q.COLD, "dark-blue", dashed=True),
        unit="s",
        thresholds=NEUTRAL,
        legend="list",
    )


def saved() -> Panel:
    """Return the prefill time that hits saved and that lost hits cost."""
    return stat(
        About(
            "Prefill within the last hour",
            "Seconds of GPU time that hits saved, and seconds lost because fewer tokens were found than over the last "
            "day; both at the price of a token that the canary measured. Normal: much saved, nothing lost. Lost time "
            "is what an incident costs: 3600 s are one GPU for that hour.",
            "Nothing to reckon: no counted traffic, or no price from the canary yet",
            [board("apc-canary", "How the canary measures the price of a token"), runbook("ApcHitRateCollapsed")],
        ),
        q.SAVED.now(),
        q.LOST.now(),
        unit="s",
        thresholds=NEUTRAL,
    )
