"""`apc-capacity`: whether the cache is large enough: blocks, how long they stay, what throws them out, what waits."""

from dashboards import queries as q
from dashboards.frame import CANARY, FLEET, runbook
from dashboards.layout import rows
from dashboards.panels import Panel, bars, dashboard, graph, heatmap, stat
from dashboards.shared import ANY_IS_BAD, NO_ENGINE, NO_EVICTIONS, NO_REQUESTS, USAGE_STATE
from dashboards.style import NEUTRAL, About, Json, Line
from dashboards.verdicts import State

NO_SAMPLES = "Not sampled: needs --kv-cache-metrics, and evictions"


def build() -> Json:
    """Return the dashboard."""
    panels = rows(
        ("Now", 4, [(4, panel) for panel in _now()]),
        ("Use and load", 8, [(8, _usage()), (8, _requests()), (8, _waits())]),
        ("What is thrown out", 8, [(12, _evictions()), (12, _tokens())]),
        ("How long blocks live", 8, [(8, panel) for panel in _residency()]),
        ("Each data-parallel rank", 8, [(12, _usage_by_rank()), (12, _hits_by_rank())]),
    )
    about = "KV blocks, how long they stay, what throws them out and what waits for them."
    return dashboard("apc-capacity", "APC capacity", about, panels, ("target", "model", "engine"))


def _now() -> list[Panel]:
    links = [FLEET, runbook("ApcKvCachePressure")]
    blocks = stat(
        About(
            "KV blocks",
            "Blocks of all chosen ranks together. It changes only with the settings or the GPU.",
            "No engine answers and tells its blocks",
            links,
        ),
        q.BLOCKS.now(),
        unit="locale",
        thresholds=NEUTRAL,
    )
    tokens = stat(
        About(
            "Tokens that fit",
            "Blocks times their size: how much prefix the cache can hold. Compare it with the prompts that should "
            "stay.",
            "No engine answers and tells its block size",
            links,
        ),
        q.CACHE_TOKENS.now(),
        unit="short",
        thresholds=NEUTRAL,
    )
    usage = stat(
        About(
            "In use, fullest rank",
            "Share of the blocks that running requests hold. Normal: below 80 %. Cached but idle blocks count as free.",
            NO_ENGINE,
            links,
        ),
        q.KV_USAGE.now(""),
        unit="percentunit",
        thresholds=USAGE_STATE,
    )
    running = stat(
        About("Running", "Requests in the running batches. Normal: whatever the load is.", NO_ENGINE, links),
        q.RUNNING.now(""),
        unit="short",
        thresholds=NEUTRAL,
    )
    waiting = stat(
        About(
            "Waiting",
            "Requests in the queues. Normal: near none. Steadily above: the engines are full.",
            NO_ENGINE,
            links,
        ),
        q.WAITING.now(""),
        unit="short",
        thresholds=NEUTRAL,
    )
    preempted = stat(
        About(
            "Preempted in 5 min",
            "Requests thrown out for want of blocks, to be computed again. Normal: none.",
            NO_ENGINE,
            links,
        ),
        q.PREEMPTED.now(),
        unit="short",
        thresholds=ANY_IS_BAD,
    )
    return [blocks, tokens, usage, running, waiting, preempted]


def _usage() -> Panel:
    return graph(
        About(
            "KV blocks in use",
            "Share of the blocks that running requests hold, of the fullest rank and on average. Normal: below the "
            "line. The fullest far above the average: requests are spread unevenly.",
            NO_ENGINE,
            [FLEET, runbook("ApcKvCachePressure")],
        ),
        Line(q.KV_USAGE),
        Line(q.KV_USAGE_MEAN, "super-light-blue"),
        Line(q.KV_LIMIT, State.BAD, dashed=True),
        unit="percentunit",
        thresholds=NEUTRAL,
        legend="table",
    )


def _requests() -> Panel:
    return graph(
        About(
            "Requests",
            "Running and waiting requests. Normal: few wait. Waiting up while running stays: no blocks are free.",
            NO_ENGINE,
            [FLEET, runbook("ApcEngineStalled")],
        ),
        Line(q.RUNNING),
        Line(q.WAITING, "purple"),
        unit="short",
        thresholds=NEUTRAL,
        legend="table",
    )


def _waits() -> Panel:
    return graph(
        About(
            "Where the first token waits, p95",
            "Time in the queue and time of the prefill. Normal: prefill is the larger. Queue the larger: more hits "
            "help little, more capacity does.",
            NO_REQUESTS,
            [CANARY, runbook("ApcTtftRegression")],
        ),
        Line(q.p95("apc_prefill_seconds", "prefill")),
        Line(q.p95("apc_queue_seconds", "queue"), "purple"),
        unit="s",
        thresholds=NEUTRAL,
        legend="table",
    )


def _evictions() -> Panel:
    return graph(
        About(
            "Evictions and preemptions",
            "Blocks thrown out of the cache in a second, of those the engine samples and not scaled up (left), and "
            "preempted requests (right). Normal: steady, no preemptions.",
            NO_EVICTIONS,
            [FLEET, runbook("ApcPrefixEvicted")],
        ),
        Line(q.EVICTIONS_SAMPLED, "super-light-blue"),
        Line(q.PREEMPTIONS, "purple", right="short"),
        unit="short",
        thresholds=NEUTRAL,
        legend="table",
    )


def _tokens() -> Panel:
    return graph(
        About(
            "Prompt tokens per second",
            "Tokens looked up, those found in the engines' own caches, and those found in an external tier. Normal: "
            "found follows looked up. The gap is what was computed.",
            NO_REQUESTS,
            [FLEET, runbook("ApcHitRateCollapsed")],
        ),
        Line(q.LOOKED_UP, "super-light-blue"),
        Line(q.FOUND),
        Line(q.EXTERNAL_FOUND, "purple"),
        unit="short",
        thresholds=NEUTRAL,
        legend="table",
    )


def _residency() -> list[Panel]:
    def times(title: str, description: str, name: str) -> Panel:
        about = About(title, description, NO_SAMPLES, [FLEET, runbook("ApcPrefixEvicted")])
        return heatmap(about, q.histogram(name), unit="s")

    return [
        times(
            "Life of an evicted block",
            "From a block's allocation to its eviction. Normal: far longer than a user's pauses. Moving down: the "
            "cache turns over faster.",
            "apc_block_lifetime_seconds",
        ),
        times(
            "Idle before eviction",
            "How long an evicted block had not been used. Shorter than the time between a user's turns: those turns "
            "miss.",
            "apc_block_idle_before_eviction_seconds",
        ),
        times(
            "Gap between two uses",
            "How long blocks rest between two uses. Compare with idle before eviction: gaps longer than that are hits "
            "lost.",
            "apc_block_reuse_gap_seconds",
        ),
    ]


def _usage_by_rank() -> Panel:
    return bars(
        About(
            "KV blocks in use, by rank",
            "A bar for each rank. Normal: all alike and below 80 %. One full beside empty ones: look at the balancer.",
            NO_ENGINE,
            [FLEET, runbook("ApcKvCachePressure")],
        ),
        q.KV_USAGE_BY_RANK.now(),
        unit="percentunit",
        thresholds=USAGE_STATE,
    )


def _hits_by_rank() -> Panel:
    return bars(
        About(
            "Hit rate, by rank",
            "A bar for each rank, the canary's requests among them. Normal: all alike. All low behind a balancer "
            "though prompts share prefixes: each rank has a cache of its own, so pin a conversation to a rank.",
            NO_REQUESTS,
            [FLEET, runbook("ApcHitRateCollapsed")],
        ),
        q.HIT_BY_RANK.now(),
        unit="percentunit",
        thresholds=NEUTRAL,
    )
