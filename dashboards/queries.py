"""What is asked of Prometheus: every PromQL expression of the dashboards, apart from how it is shown.

`<target>` and `<cache>` stand for the matchers of the dashboard's variables. A name that nobody declares or records
fails the import. A ratio is a sum over a sum with a guarded denominator: idle is no series.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from dashboards import names
from dashboards.verdicts import WORDS
from probes.curve import SHARES
from probes.plan import Arm

MATCHERS: Final = {
    "<target>": 'target=~"$target"',
    "<cache>": 'target=~"$target",model_name=~"$model",engine=~"$engine"',
}


class Kind(StrEnum):
    """How a query is asked, and its answer taken."""

    RANGE = "range"
    NOW = "now"  # one value for each series, none where it is stale
    TABLE = "table"  # the same, with a column for each label
    HEATMAP = "heatmap"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and what its series are called."""

    expr: str
    legend: str = ""
    kind: Kind = Kind.RANGE

    def named(self, legend: str) -> "Query":
        """Return the query under another name."""
        return replace(self, legend=legend)

    def now(self, legend: str | None = None) -> "Query":
        """Return the query for its present value."""
        return replace(self, kind=Kind.NOW, legend=self.legend if legend is None else legend)

    def table(self) -> "Query":
        """Return the query for a table of present values."""
        return replace(self, kind=Kind.TABLE)


def query(expr: str, legend: str = "", kind: Kind = Kind.RANGE) -> Query:
    """Return a query whose names exist, with the matchers filled in; raises UnknownNameError."""
    names.check(expr)
    for placeholder, matchers in MATCHERS.items():
        expr = expr.replace(placeholder, matchers)
    return Query(" ".join(expr.split()).replace("( ", "(").replace(" )", ")"), legend, kind)


# Label, meaning and query of each variable of the dashboards.
VARIABLES: Final = {
    "target": (
        "Target",
        "Engines and gateways, by the names in the settings",
        names.check('label_values({__name__=~"apc_engine_up|apc_canary_interval_seconds"}, target)'),
    ),
    "model": (
        "Model",
        "Narrows what engines tell of their caches",
        names.check("label_values(apc_engine_info, model_name)"),
    ),
    "engine": (
        "Engine",
        "Data-parallel rank; narrows what engines tell of their caches",
        names.check("label_values(apc_engine_info, engine)"),
    ),
}

# --- Is it working?
# The worst verdict of each target, as its place in verdicts.WORDS.
VERDICT: Final = query(
    "max by (target) ("
    + " or ".join(
        f'target:apc_verdict:current{{<target>,verdict="{code}"}} * {n}' for n, (code, _, _) in enumerate(WORDS)
    )
    + ")",
    "{{target}}",
)
WORST_VERDICTS: Final = query(f"topk(3, {VERDICT.expr})", "{{target}}")


def users_hit_rate(ago: str = "", legend: str = "users") -> Query:
    """Return the share of the users' prompt tokens that was found, over all chosen targets; `ago` is an offset."""
    offset = f" offset {ago}" if ago else ""
    return query(
        f"clamp_min(sum(target:apc_organic_hit_tokens:rate5m{{<target>}}{offset}), 0)"
        f" / (sum(target:apc_organic_tokens:rate5m{{<target>}}{offset}) > 0)",
        legend,
    )


ALL_HIT_RATE: Final = query(
    """sum(engine:apc_hit_tokens:rate5m{<target>}) / (sum(engine:apc_lookup_tokens:rate5m{<target>}) > 0)""",
    "with canary",
)
LIFETIME_HIT_RATE: Final = query("max by (target) (apc_reported_hit_ratio{<target>})", "{{target}} ever (V0)")
# More found than the canary and the noise between two scrapes can explain.
SINCE_LAST_HIT: Final = query(
    """time() - max(max_over_time(timestamp(
      target:apc_organic_hit_tokens:rate2m{<target>} > on (target) 2.5 * target:apc_organic_noise:rate5m
    )[1d:15s]))"""
)

# --- What does it cost?
WARM: Final = query('avg(target:apc_canary_ttft_seconds:median15m{<target>,arm="repeat"})', "cached (canary)")
COLD: Final = query('avg(target:apc_canary_ttft_seconds:median15m{<target>,arm="control"})', "not cached (canary)")


def ttft(quantile: float, legend: str) -> Query:
    """Return a quantile of the time to first token of all requests to the chosen targets."""
    buckets = "sum by (le) (target:apc_ttft_seconds_bucket:rate5m{<target>})"
    return query(f"histogram_quantile({quantile}, {buckets}) >= 0", legend)


SAVED: Final = query("sum(sum_over_time(target:apc_saved_prefill_seconds:rate5m{<target>}[1h:15s])) * 15", "saved")
LOST: Final = query("sum(sum_over_time(target:apc_lost_prefill_seconds:rate5m{<target>}[1h:15s])) * 15", "lost")

# --- Why?
KV_USAGE: Final = query("max(apc_kv_usage_ratio{<cache>})", "fullest rank")
KV_USAGE_MEAN: Final = query("avg(apc_kv_usage_ratio{<cache>})", "mean of ranks")
KV_USAGE_BY_RANK: Final = query("max by (target, engine) (apc_kv_usage_ratio{<cache>})", "{{target}} rank {{engine}}")
KV_LIMIT: Final = query("fleet:apc_kv_usage:threshold", "alert")
EVICTIONS: Final = query("sum(rate(apc_evicted_blocks_total{<cache>}[$__rate_interval]))", "evicted blocks/s")
EVICTIONS_SAMPLED: Final = query(
    'sum(rate(apc_evicted_blocks_total{<cache>,method="sampled"}[$__rate_interval]))', "sampled, as counted"
)
PREEMPTIONS: Final = query("sum(rate(apc_preemptions_total{<cache>}[$__rate_interval]))", "preemptions/s")
PREEMPTED: Final = query("sum(increase(apc_preemptions_total{<cache>}[5m]))")
RESTARTS: Final = query(
    """sum(
      max by (target) (changes(apc_engine_start_time_seconds{<target>}[1d]))
      or max by (target) (resets(apc_prompt_tokens_total{<target>}[1d]))
    )"""
)
RETAINED: Final = query('min(target:apc_canary_hit:ratio{<target>,arm="retained"})', "retained")
REPEATED: Final = query('min(target:apc_canary_hit:ratio{<target>,arm="repeat"})', "repeat")

# --- What fires?
# When it began, in ms. The alerts on the stack itself have no target.
ALERTS: Final = query(
    """max by (severity, alertname, target) (
      ALERTS_FOR_STATE{alertname=~"Apc.*",target=~"$target|"} and ignoring (alertstate) ALERTS{alertstate="firing"}
    ) * 1000"""
)
ENGINES: Final = query(
    """max by (target, reason) (apc_engine_scrape_error{<target>} == 1)
    or label_replace(
      max by (target) (apc_engine_up{<target>} == 1) and on (target) apc_engine_healthy == 0,
      "reason", "unhealthy", "", ""
    )
    or label_replace(
      max by (target) (apc_engine_up{<target>} == 1) unless on (target) apc_engine_healthy == 0,
      "reason", "answers", "", ""
    )"""
)
STACK: Final = query('min by (job) (up{job=~"apc-exporter|apc-probe"})', "{{job}}")

# --- Time to first token against hit rate
LOAD: Final = query("sum(apc_requests_running{<target>}) + sum(apc_requests_waiting{<target>})", "Requests at once")
CURVE: Final = tuple(
    query(f'max(apc_curve_ttft_seconds{{<target>,shared_percent="{share}"}})', f"{share} % shared", Kind.NOW)
    for share in SHARES
)

# --- The canary, each target by itself
ARM_NAMES: Final = {
    Arm.REPEAT: "repeat: cached",
    Arm.RETAINED: "retained: cached a cycle ago",
    Arm.CONTROL: "control: not cached",
}
ARM_TTFT: Final = tuple(
    query(f'max by (target) (apc_canary_last_ttft_seconds{{<target>,arm="{arm}"}})', name)
    for arm, name in ARM_NAMES.items()
)
RETAINED_BY_TARGET: Final = query(
    'max by (target) (apc_canary_hit_ratio{<target>,arm="retained"})', "usage: cached after a cycle"
)
COUNTERS_SAY: Final = query("target:apc_hit:ratio_rate5m{<target>}", "counters: tokens found")
USAGE_SAYS: Final = query(
    'max by (target) (apc_canary_hit_ratio{<target>,arm="repeat"})', "usage: canary's tokens cached"
)
TTFT_SAYS: Final = query(
    "max by (target) (1 - 1 / target:apc_canary_cold_per_warm:ratio{<target>})", "TTFT: canary's wait saved"
)
COLD_PER_WARM: Final = query("target:apc_canary_cold_per_warm:ratio{<target>}", "{{target}}")
INTERVALS_SINCE_SUCCESS: Final = query(
    """(time() - max by (target) (apc_canary_last_success_timestamp_seconds{<target>}))
    / max by (target) (apc_canary_interval_seconds)""",
    "{{target}}",
)
BUDGET_USED: Final = query(
    """60 * sum by (target) (rate(apc_canary_prompt_tokens_total{<target>}[5m]))
    / max by (target) (apc_canary_token_budget_per_minute)""",
    "{{target}}",
)
CYCLES_OK: Final = query('sum(increase(apc_canary_runs_total{<target>,result="ok"}[$__rate_interval]))', "ok")
CYCLES_NOT_OK: Final = query(
    'sum(increase(apc_canary_runs_total{<target>,result!="ok"}[$__rate_interval]))', "failed or not sent"
)
FAILURES: Final = query(
    "sum by (target, arm, reason) (increase(apc_canary_failures_total{<target>}[1h])) > 0", kind=Kind.TABLE
)

# --- Capacity
BLOCKS: Final = query("sum(apc_engine_kv_blocks{<cache>})")
CACHE_TOKENS: Final = query("sum(apc_engine_kv_blocks{<cache>} * apc_engine_block_size_tokens{<cache>})")
RUNNING: Final = query("sum(apc_requests_running{<cache>})", "running")
WAITING: Final = query("sum(apc_requests_waiting{<cache>})", "waiting")
LOOKED_UP: Final = query("sum(engine:apc_lookup_tokens:rate5m{<cache>})", "looked up")
FOUND: Final = query("sum(engine:apc_hit_tokens:rate5m{<cache>})", "found")
EXTERNAL_FOUND: Final = query("sum(target:apc_external_hit_tokens:rate5m{<target>})", "found in the external tier")
HIT_BY_RANK: Final = query(
    "max by (target, engine) (engine:apc_hit:ratio_rate5m{<cache>})", "{{target}} rank {{engine}}"
)


def p95(histogram: str, legend: str) -> Query:
    """Return the 95th percentile of a histogram of the engines."""
    buckets = f"sum by (le) (rate({histogram}_bucket{{<cache>}}[$__rate_interval]))"
    return query(f"histogram_quantile(0.95, {buckets}) >= 0", legend)


def histogram(name: str) -> Query:
    """Return a histogram of the engines for a heatmap."""
    return query(f"sum by (le) (increase({name}_bucket{{<cache>}}[$__rate_interval]))", "{{le}}", Kind.HEATMAP)


# --- The fleet, a row for each target
ANSWERING: Final = query("sum(apc_engine_up{<target>})", "answer")
KNOWN: Final = query("count(apc_engine_up{<target>})", "known")
FLEET: Final = {
    "Verdict": VERDICT,
    "Users' hit rate": query("target:apc_organic_hit:ratio_rate5m{<target>}"),
    "Last day": query("target:apc_organic_hit:ratio_rate1d{<target>}"),
    "Users' tokens/s": query("target:apc_organic_tokens:rate5m{<target>}"),
    "TTFT p50": query('sum by (target) (target:apc_ttft_seconds:quantile_rate5m{<target>,quantile="0.5"})'),
    "TTFT p95": query('sum by (target) (target:apc_ttft_seconds:quantile_rate5m{<target>,quantile="0.95"})'),
    "Cold / warm": query("target:apc_canary_cold_per_warm:ratio{<target>}"),
    "Block size": query("max by (target) (apc_engine_block_size_tokens{<target>})"),
    "KV usage": query("target:apc_kv_usage:max{<target>}"),
}
VERSIONS: Final = query("max by (target, version, dialect) (apc_engine_info{<target>})")
GAPS: Final = query(
    """max by (target, field) (apc_engine_field_found{<target>} == 0)
    or max by (target, fault) (apc_engine_data_fault{<target>} == 1)"""
)
MODEL_HIT_RATE: Final = query('model:apc_organic_hit:ratio_rate5m{model_name=~"$model"}', "{{model_name}}")
TARGET_TOKENS: Final = query("sum by (target) (engine:apc_lookup_tokens:rate5m{<target>})", "{{target}}")

# --- What explains a change, marked on every graph
ANNOTATION_STEP: Final = "60s"
# The time of the start, in ms; an engine that loads its model tells it long after.
RESTARTS_AT: Final = query("max by (target) (apc_engine_start_time_seconds{<target>} > time() - 3600) * 1000")
# Told for two minutes: what was not there in the hour before, of a target that was.
SETTINGS_CHANGED: Final = query(
    """(apc_engine_info{<target>} unless max_over_time(apc_engine_info{<target>}[1h] offset 2m))
    and on (target) max_over_time(apc_engine_info{<target>}[1h] offset 2m)"""
)
ALERTS_FIRING: Final = query('ALERTS{alertname=~"Apc.*",alertstate="firing",target=~"$target|"}')
CANARY_FAILED: Final = query("sum by (target, reason) (increase(apc_canary_failures_total{<target>}[2m])) > 0")
