"""`apc-oncall`: one screen, and from left to right a night's questions: does it work, at what cost, why, what fires."""

from typing import Final

from dashboards import queries as q
from dashboards.frame import CANARY, CAPACITY, FLEET, board, runbook, runbook_uid
from dashboards.layout import Sized, column
from dashboards.panels import dashboard, graph, stat, table, text
from dashboards.shared import (
    ANY_IS_BAD,
    HIT_RATE_STATE,
    NO_CANARY,
    NO_ENGINE,
    NO_EVICTIONS,
    NO_REQUESTS,
    NO_TARGET,
    NO_TRAFFIC,
    NO_VERDICT,
    USAGE_STATE,
    saved,
    ttft_against_hit_rate,
)
from dashboards.style import NEUTRAL, VERDICTS, About, Column, Json, Line, words
from dashboards.verdicts import State

COLOURED: Final = {"type": "color-text"}
SEVERITIES: Final = words([("page", State.BAD, "page"), ("ticket", State.WARN, "ticket")])
ANSWERS: Final = [
    *words([("answers", State.GOOD, "answers")]),
    {"type": "regex", "options": {"pattern": "(.+)", "result": {"text": "$1", "color": State.BAD, "index": 1}}},
]


def build() -> Json:
    """Return the dashboard."""
    questions = ("Is it working?", "What does it cost?", "Why?", "What fires?")
    stacks = (_working(), _cost(), _why(), _fires())
    panels = [
        panel
        for place, (question, stack) in enumerate(zip(questions, stacks, strict=True))
        for panel in column(6 * place, 6, (2, text(f"## {question}", transparent=True)), *stack)
    ]
    panels = sorted(panels, key=lambda panel: (panel.gridPos["y"], panel.gridPos["x"]))
    about = "Does prefix caching work, what does it cost, why, and what fires. Made by python -m dashboards build."
    return dashboard("apc-oncall", "APC on call", about, panels, ("target", "model", "engine"))


def _working() -> list[Sized]:
    verdict = stat(
        About(
            "Verdict",
            "What the probe makes of counters, canary and traffic together: the worst finding of the three worst "
            "targets. Normal: Reuse works. Otherwise `make doctor` says on which numbers it rests and what to type.",
            NO_VERDICT,
            [FLEET, CANARY, runbook("ApcCanaryNoReuse")],
        ),
        q.WORST_VERDICTS.now(),
        unit="none",
        thresholds=NEUTRAL,
        mappings=VERDICTS,
        background=True,
    )
    rate = stat(
        About(
            "Users' hit rate now, an hour ago, a day ago",
            "Share of the prompt tokens that were found in the cache, over five minutes, without the canary's. "
            "Normal: near what it was a day ago. Near zero with traffic there is what this stack is for: read the "
            "verdict. Old engines (V0) report only a rate since their start.",
            NO_TRAFFIC,
            [FLEET, runbook("ApcHitRateZero"), runbook("ApcHitRateCollapsed")],
        ),
        q.users_hit_rate(legend="now").now(),
        q.users_hit_rate("1h", "1 h ago").now(),
        q.users_hit_rate("1d", "1 d ago").now(),
        q.LIFETIME_HIT_RATE.now(),
        unit="percentunit",
        thresholds=HIT_RATE_STATE,
    )
    last = stat(
        About(
            "Since the last hit",
            "Time since users' prompts were last found in the cache, up to a day. Normal: seconds while there is "
            "traffic. A long time with traffic on: reuse has stopped then, so look at what changed at that time.",
            "No hit of users was counted within a day",
            [CANARY, runbook("ApcHitRateZero")],
        ),
        q.SINCE_LAST_HIT.now(),
        unit="s",
        thresholds=NEUTRAL,
    )
    over_time = graph(
        About(
            "Hit rate over time",
            "The users' hit rate, that of all requests with the canary's among them, and the share of the canary's "
            "repeated prompt that was cached. Normal: all high. Users low and canary high: their prompts vary, the "
            "engine is fine. All low: the engine does not reuse.",
            NO_REQUESTS,
            [CANARY, runbook("ApcHitRateZero")],
        ),
        Line(q.users_hit_rate()),
        Line(q.ALL_HIT_RATE, "super-light-blue"),
        Line(q.REPEATED.named("canary's repeated prompt"), "purple", dashed=True),
        unit="percentunit",
        thresholds=NEUTRAL,
        legend="list",
    )
    return [(4, verdict), (4, rate), (3, last), (9, over_time)]


def _cost() -> list[Sized]:
    canary = stat(
        About(
            "First token: the canary",
            "What a cached and an uncached prompt of the same length wait for their first token: the median of "
            "fifteen minutes, averaged over the chosen targets. Normal: cached is several times faster. Close "
            "together: reuse is broken, or prefill is cheap beside the queue.",
            NO_CANARY,
            [CANARY, runbook("ApcTtftRegression")],
        ),
        q.WARM.now("cached"),
        q.COLD.now("not cached"),
        unit="s",
        thresholds=NEUTRAL,
    )
    users = stat(
        About(
            "First token: all requests",
            "What the engines' requests wait for their first token, the queue included, over five minutes. Normal: "
            "p50 near the canary's cached prompt. Both near its uncached prompt: users pay full prefill.",
            NO_REQUESTS,
            [CAPACITY, runbook("ApcTtftRegression")],
        ),
        q.ttft(0.5, "p50").now(),
        q.ttft(0.95, "p95").now(),
        unit="s",
        thresholds=NEUTRAL,
    )
    return [
        (4, canary),
        (4, users),
        (3, saved()),
        (9, ttft_against_hit_rate(board("apc-canary", "The same as a scatter and a curve"))),
    ]


def _why() -> list[Sized]:
    canary = stat(
        About(
            "Canary: cached share of its prompt",
            "Retained: the prefix sent a cycle ago. Repeat: the one sent a moment ago. Of the worst target. Normal: "
            "both near 100 %. Repeat low: reuse is broken. Only retained low: prefixes are evicted between two "
            "cycles.",
            "No cycle succeeded, or the usage tells no cached tokens",
            [CANARY, runbook("ApcCanaryNoReuse"), runbook("ApcPrefixEvicted")],
        ),
        q.RETAINED.now(),
        q.REPEATED.now(),
        unit="percentunit",
        thresholds=((None, State.BAD), (0.1, State.WARN), (0.5, State.GOOD)),
    )
    usage = stat(
        About(
            "KV blocks in use",
            "Share of the KV blocks that running requests hold, of the fullest rank. Normal: below 80 %. Near 100 % "
            "no room is left for prefixes to stay: fewer requests at once, or more blocks.",
            NO_ENGINE,
            [CAPACITY, runbook("ApcKvCachePressure")],
        ),
        q.KV_USAGE.now(""),
        unit="percentunit",
        thresholds=USAGE_STATE,
    )
    preempted = stat(
        About(
            "Preempted in 5 min",
            "Requests thrown out for want of KV blocks, to be computed again. Normal: none. Any: the cache is too "
            "small for the load.",
            NO_ENGINE,
            [CAPACITY, runbook("ApcKvCachePressure")],
        ),
        q.PREEMPTED.now(),
        unit="short",
        thresholds=ANY_IS_BAD,
    )
    evicted = stat(
        About(
            "Evicted blocks/s",
            "Cached blocks that gave way to others. Normal: some, once the cache is full. A jump, and retained "
            "falling: prefixes no longer survive.",
            NO_EVICTIONS,
            [CAPACITY, runbook("ApcPrefixEvicted")],
        ),
        q.EVICTIONS.now(""),
        unit="short",
        thresholds=NEUTRAL,
    )
    restarts = stat(
        About(
            "Restarts in a day",
            "How often the engines were started anew. Normal: none but deployments. A restart empties the cache: the "
            "hit rate recovers by itself within minutes.",
            NO_ENGINE,
            [CAPACITY, runbook("ApcEngineDown")],
        ),
        q.RESTARTS.now(),
        unit="short",
        thresholds=ANY_IS_BAD,
    )
    pressure = graph(
        About(
            "Pressure on the cache",
            "KV blocks in use (left) beside evicted blocks and preemptions per second (right). Normal: use below the "
            "dashed line, no preemptions. All three up together: the load has outgrown the cache.",
            NO_ENGINE,
            [CAPACITY, runbook("ApcKvCachePressure")],
        ),
        Line(q.KV_USAGE),
        Line(q.KV_LIMIT, State.BAD, dashed=True),
        Line(q.EVICTIONS, "purple", right="short"),
        Line(q.PREEMPTIONS, "super-light-purple", right="short"),
        unit="percentunit",
        thresholds=NEUTRAL,
        legend="list",
    )
    return [(3, canary), (4, (usage, evicted)), (4, (preempted, restarts)), (9, pressure)]


def _fires() -> list[Sized]:
    alerts = table(
        About(
            "Alerts",
            "What fires now and since when; `page` first. A click on a name opens its runbook. Normal: none. The "
            "alerts of the stack itself have no target.",
            "Nothing fires",
            [FLEET, runbook("ApcRuleEvaluationFailing")],
        ),
        q.ALERTS,
        columns={
            "Severity": Column(
                "severity", {"mappings": SEVERITIES, "custom.cellOptions": COLOURED, "custom.width": 80}
            ),
            "Alert": Column(
                "alertname", {"links": [{"title": "Runbook", "url": f"/d/{runbook_uid('${__value.raw}')}"}]}
            ),
            "Target": Column("target", {"custom.width": 90}),
            "Since": Column("Value", {"unit": "dateTimeFromNow", "custom.width": 110}),
        },
        sort="Severity",
    )
    engines = table(
        About(
            "Engines",
            "Whether the exporter gets an engine's metrics; if not, why. Normal: all answer. `unhealthy`: its metrics "
            "are there, but its health page says no, and they may be frozen.",
            NO_TARGET,
            [FLEET, runbook("ApcEngineDown"), runbook("ApcMetricsMissing")],
        ),
        q.ENGINES,
        columns={
            "Target": Column("target", {}),
            "State": Column("reason", {"mappings": ANSWERS, "custom.cellOptions": COLOURED}),
        },
        sort="State",
        descending=True,
    )
    stack = stat(
        About(
            "This stack",
            "Whether Prometheus reaches exporter and probe. Normal: both up. Down: the rest of this page is old or "
            "blank.",
            "Prometheus scrapes neither exporter nor probe",
            [FLEET, runbook("ApcExporterDown"), runbook("ApcProbeDown")],
        ),
        q.STACK.now(),
        unit="none",
        thresholds=((None, State.BAD), (1, State.GOOD)),
        mappings=words([(0, State.BAD, "down"), (1, State.GOOD, "up")]),
    )
    return [(11, alerts), (6, engines), (3, stack)]
