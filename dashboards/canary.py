"""`apc-canary`: what reuse is worth, as measured, and whether counters, usage and waiting times agree on it."""

from dashboards import queries as q
from dashboards.frame import CAPACITY, FLEET, runbook
from dashboards.layout import rows
from dashboards.panels import Panel, bars, dashboard, graph, scatter, states, table
from dashboards.shared import NO_CANARY, NO_TRAFFIC, NO_VERDICT, ttft_against_hit_rate
from dashboards.style import NEUTRAL, VERDICTS, About, Column, Json, Line
from dashboards.verdicts import State


def build() -> Json:
    """Return the dashboard."""
    third, half, whole = 8, 12, 24
    panels = rows(
        (
            "Time to first token against hit rate: as it went, as it scatters, and as the canary caused it",
            9,
            [
                (third, ttft_against_hit_rate(CAPACITY)),
                (third, _scatter()),
                (third, _curve()),
            ],
        ),
        ("The canary's arms: engines and gateways side by side", 8, [(whole, _first_tokens())]),
        ("", 7, [(whole, _signals())]),
        ("What became of the cycles", 8, [(half, _verdicts()), (half, _gain())]),
        ("", 7, [(6, _cycles()), (6, _freshness()), (6, _budget()), (6, _failures())]),
    )
    about = "What the canary measures: prompts that share a prefix, sent on a schedule to engines and gateways."
    return dashboard("apc-canary", "APC canary", about, panels, ("target",))


def _scatter() -> Panel:
    return scatter(
        About(
            "TTFT against hit rate, each moment a point",
            "The median wait for the first token over the users' hit rate at the same time; the stronger the colour, "
            "the more requests at once. Normal: points fall from the upper left to the lower right. A cloud without a "
            "slope: waiting comes from load, not from the cache. It shows what goes together, not what causes it.",
            NO_TRAFFIC,
            [CAPACITY, runbook("ApcTtftRegression")],
        ),
        {
            "x": (q.users_hit_rate(legend="Users' hit rate"), "percentunit"),
            "y": (q.ttft(0.5, "TTFT p50"), "s"),
            "colour": (q.LOAD, "short"),
        },
    )


def _curve() -> Panel:
    return bars(
        About(
            "TTFT by shared part of the prompt",
            "The canary's wait for the first token when none, a quarter, ... all of what can be reused of its prompt "
            "was cached: what reuse causes, all else being equal; medians of the last sweep, of the slowest target. "
            "Normal: each bar shorter than the one above. All alike: prefill is cheap beside the rest. A bar missing: "
            "that share was not cached as planned, and the probe's log says what was.",
            "No sweep of the canary has ended well yet, or APC_CURVE_INTERVAL is 0",
            [CAPACITY, runbook("ApcTtftRegression")],
        ),
        *q.CURVE,
        unit="s",
        thresholds=NEUTRAL,
    )


def _first_tokens() -> Panel:
    return graph(
        About(
            "First token: $target",
            "The canary's wait by arm. Control: a prompt that cannot be cached. Repeat: one sent a moment ago. "
            "Retained: one sent a cycle ago. Normal: control well above the other two. All on the height of control: "
            "no reuse.",
            NO_CANARY,
            [CAPACITY, runbook("ApcTtftRegression")],
        ),
        *(
            Line(query, colour)
            for query, colour in zip(q.ARM_TTFT, ("blue", "super-light-blue", "purple"), strict=True)
        ),
        unit="s",
        thresholds=NEUTRAL,
        legend="list",
        repeat="target",
    )


def _signals() -> Panel:
    return graph(
        About(
            "Three signals: $target",
            "What counters, usage and waiting times say of reuse. Normal: all well above zero. One at zero beside the "
            "others: that signal is broken, not the cache. A gateway has no counters.",
            NO_CANARY,
            [CAPACITY, runbook("ApcSignalsContradict")],
        ),
        Line(q.COUNTERS_SAY),
        Line(q.USAGE_SAYS, "purple"),
        Line(q.TTFT_SAYS, "super-light-blue"),
        Line(q.RETAINED_BY_TARGET, "super-light-purple", dashed=True),
        unit="percentunit",
        thresholds=NEUTRAL,
        legend="list",
        repeat="target",
    )


def _verdicts() -> Panel:
    return states(
        About(
            "Verdicts",
            "The worst verdict of each target over time. Normal: one green band. Where a colour begins is when it "
            "happened: look at the marks of restarts and settings there.",
            NO_VERDICT,
            [FLEET, runbook("ApcCanaryNoReuse")],
        ),
        q.VERDICT,
        mappings=VERDICTS,
    )


def _gain() -> Panel:
    return bars(
        About(
            "How many times longer an uncached prompt waits",
            "Control over repeat, medians of fifteen minutes, a bar for each engine and gateway. Normal: 2 to 20, the "
            "more the longer the prompt. 1: reuse saves nothing. A gateway near 1 before an engine far above it: the "
            "gateway spreads prompts over engines, or alters them.",
            NO_CANARY,
            [CAPACITY, runbook("ApcTtftRegression")],
        ),
        q.COLD_PER_WARM.now(),
        unit="short",
        thresholds=((None, State.WARN), (1.2, State.GOOD)),
    )


def _cycles() -> Panel:
    return graph(
        About(
            "Cycles",
            "The canary's cycles, those that measured and the rest. Normal: no rest. The table beside says why.",
            "The probe is down",
            [FLEET, runbook("ApcProbeFailing")],
        ),
        Line(q.CYCLES_OK),
        Line(q.CYCLES_NOT_OK, State.BAD),
        unit="short",
        thresholds=NEUTRAL,
        legend="list",
    )


def _freshness() -> Panel:
    return bars(
        About(
            "Intervals since the last success",
            "How old the canary's figures are, in its own intervals. Normal: below 2. From 5 on they are stale, and "
            "an alert says so.",
            "No cycle has succeeded yet",
            [FLEET, runbook("ApcProbeStale")],
        ),
        q.INTERVALS_SINCE_SUCCESS.now(),
        unit="short",
        thresholds=((None, State.GOOD), (2, State.WARN), (5, State.BAD)),
    )


def _budget() -> Panel:
    return bars(
        About(
            "Token budget in use",
            "Prompt tokens that the canary sends, of those it may. Normal: below 90 %. At the limit cycles are left "
            "out: raise APC_CANARY_TOKENS_PER_MINUTE or the interval.",
            "The canary has sent nothing in five minutes",
            [FLEET, runbook("ApcProbeStale")],
        ),
        q.BUDGET_USED.now(),
        unit="percentunit",
        thresholds=((None, State.GOOD), (0.9, State.WARN)),
    )


def _failures() -> Panel:
    return table(
        About(
            "Failed requests within an hour",
            "The canary's requests that failed, by what went wrong. Normal: none. Users most likely meet the same.",
            "No failed request of the canary is known",
            [FLEET, runbook("ApcProbeFailing")],
        ),
        q.FAILURES,
        columns={
            "Target": Column("target", {}),
            "Arm": Column("arm", {}),
            "Reason": Column("reason", {}),
            "Times": Column("Value", {"unit": "short", "decimals": 0}),
        },
        sort="Times",
        descending=True,
    )
