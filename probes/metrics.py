"""What the probe exports, declared once. Label sets are made at the start, so that no counter is born above zero."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

from exporter.engine import TTFT_BOUNDS
from probes.canary import Cycle
from probes.config import CanaryTarget
from probes.curve import RESULTS as SWEPT
from probes.curve import SHARES
from probes.evidence import first_token
from probes.outcome import ErrorClass
from probes.plan import Arm
from probes.verdict import Code

disable_created_metrics()  # type: ignore[no-untyped-call]

RESULTS: Final = ("ok", "failed", "over_budget", "missed", "overlapped", "error")


@dataclass(frozen=True, slots=True)
class Family:
    """One exported family."""

    name: str
    kind: type[Counter | Gauge | Histogram]
    labels: tuple[str, ...]
    help: str


TARGET: Final = ("target",)
ARM: Final = ("target", "arm")

REQUESTS = Family("apc_canary_requests_total", Counter, ARM, "Canary requests sent.")
FAILURES = Family("apc_canary_failures_total", Counter, (*ARM, "reason"), "Canary requests that failed, by class.")
TTFT = Family(
    "apc_canary_ttft_seconds",
    Histogram,
    ARM,
    "Seconds to the canary's first token, as a client sees it; none of an answer that was held back on its way.",
)
LAST_TTFT = Family("apc_canary_last_ttft_seconds", Gauge, ARM, "The same of the last cycle: the median of the arm.")
PROMPT = Family("apc_canary_prompt_tokens_total", Counter, TARGET, "Prompt tokens that the canary sent, from usage.")
CACHED = Family(
    "apc_canary_cached_tokens_total", Counter, TARGET, "Those of them that the engine had cached, from usage."
)
HIT_RATIO = Family("apc_canary_hit_ratio", Gauge, ARM, "Cached over prompt tokens of the arm in the last cycle, 0..1.")
RUNS = Family(
    "apc_canary_runs_total", Counter, (*TARGET, "result"), "Cycles by result; all but ok and failed measured nothing."
)
LAST_SUCCESS = Family(
    "apc_canary_last_success_timestamp_seconds", Gauge, TARGET, "Unix time of the last cycle without a failed request."
)
INTERVAL = Family("apc_canary_interval_seconds", Gauge, TARGET, "Seconds between two cycles, a setting.")
BUDGET = Family(
    "apc_canary_token_budget_per_minute", Gauge, TARGET, "Tokens the canary may use in a minute, a setting."
)
PER_TOKEN = Family(
    "apc_canary_prefill_seconds_per_token",
    Gauge,
    TARGET,
    "Seconds that a token costs where it is not cached: TTFT of control less repeat, over what repeat had cached.",
)
VERDICT = Family(
    "apc_verdict", Gauge, (*TARGET, "verdict"), "1 for what the last cycles show, by code; 0 for the rest."
)
CURVE = Family(
    "apc_curve_ttft_seconds",
    Gauge,
    (*TARGET, "shared_percent"),
    "Seconds to the first token with that much of what can be reused of a prompt cached, median of the last sweep.",
)
SWEEPS = Family(
    "apc_curve_sweeps_total",
    Counter,
    (*TARGET, "result"),
    "Sweeps of the curve by result; partial: a share that was not cached as planned is left out.",
)
FAMILIES: Final = (
    REQUESTS, FAILURES, TTFT, LAST_TTFT, PROMPT, CACHED, HIT_RATIO, RUNS, LAST_SUCCESS, INTERVAL, BUDGET, PER_TOKEN,
    VERDICT, CURVE, SWEEPS,
)  # fmt: skip


class Metrics:
    """The families in a registry of their own, for the given targets."""

    def __init__(self, targets: Iterable[CanaryTarget]) -> None:
        self.registry = CollectorRegistry()
        self._of = {family: self._make(family) for family in FAMILIES}
        for target in targets:
            self._prepare(target)

    def count(self, target: str, result: str) -> None:
        """Count a cycle's result."""
        self._child(RUNS, target, result).inc()

    def take(self, cycle: Cycle) -> None:
        """Take a cycle in: its requests, its figures, its result."""
        target = cycle.target
        self.count(target, cycle.result)
        for planned, result in ((sent.planned, sent.result) for sent in cycle.sent):
            self._child(REQUESTS, target, planned.arm).inc()
            if result.failure:
                self._child(FAILURES, target, planned.arm, result.failure.error_class).inc()
            self._child(PROMPT, target).inc(result.prompt_tokens or 0)
            self._child(CACHED, target).inc(result.cached_tokens or 0)
            if planned.measures and (ttft := first_token(result)) is not None:
                self._child(TTFT, target, planned.arm).observe(ttft)
        if cycle.failure and not cycle.sent:  # it failed before its first request
            self._child(FAILURES, target, Arm.RETAINED, cycle.failure.error_class).inc()
        if cycle.result == "ok":
            self._child(LAST_SUCCESS, target).set(cycle.started_at)
        for arm in Arm:
            self._set(LAST_TTFT, median_ttft(cycle, arm), target, arm)
            self._set(HIT_RATIO, hit_ratio(cycle, arm), target, arm)
        self._set(PER_TOKEN, seconds_per_token(cycle), target)
        for share in SHARES:
            self._set(CURVE, cycle.curve.get(share), target, str(share))
        if cycle.sweep:
            self._child(SWEEPS, target, cycle.sweep.result).inc()

    def show(self, target: str, codes: Iterable[Code]) -> None:
        """Show these verdicts and no others."""
        shown = set(codes)
        for code in Code:
            self._child(VERDICT, target, code).set(code in shown)

    def _set(self, family: Family, value: float | None, *labels: str) -> None:
        """Set a gauge; None takes its series away, since unknown is not zero."""
        if value is None:
            self._of[family].remove(*labels)
        else:
            self._child(family, *labels).set(value)

    def _make(self, family: Family) -> MetricWrapperBase:
        if family.kind is Histogram:
            return Histogram(family.name, family.help, family.labels, registry=self.registry, buckets=TTFT_BOUNDS)
        return family.kind(family.name, family.help, family.labels, registry=self.registry)

    def _child(self, family: Family, *labels: str) -> Any:  # noqa: ANN401  # one of three types of child
        return self._of[family].labels(*labels)

    def _prepare(self, target: CanaryTarget) -> None:
        self._child(INTERVAL, target.name).set(target.interval)
        self._child(BUDGET, target.name).set(target.tokens_per_minute)
        self.show(target.name, ())
        for family in (PROMPT, CACHED):
            self._child(family, target.name)
        for result in RESULTS:
            self._child(RUNS, target.name, result)
        for result in SWEPT:
            self._child(SWEEPS, target.name, result)
        for arm in Arm:
            self._child(REQUESTS, target.name, arm)
            if arm is not Arm.CURVE:
                self._child(TTFT, target.name, arm)
            for reason in ErrorClass:
                self._child(FAILURES, target.name, arm, reason)


def median_ttft(cycle: Cycle, arm: Arm) -> float | None:
    """Return the median TTFT of an arm in seconds; None where none was measured."""
    seconds = [ttft for r in cycle.of(arm) if (ttft := first_token(r)) is not None]
    return statistics.median(seconds) if seconds else None


def hit_ratio(cycle: Cycle, arm: Arm) -> float | None:
    """Return cached over prompt tokens of an arm, 0..1; None where the server does not tell."""
    told = [(cycle.cached(r), r.prompt_tokens) for r in cycle.of(arm)]
    cached = [c for c, p in told if c is not None and p]
    prompt = sum(p for c, p in told if c is not None and p)
    return sum(cached) / prompt if prompt else None


def seconds_per_token(cycle: Cycle) -> float | None:
    """Return what an uncached token costs: the TTFT that reuse saved over the tokens that it saved."""
    cold, warm = median_ttft(cycle, Arm.CONTROL), median_ttft(cycle, Arm.REPEAT)
    saved = [cached for r in cycle.of(Arm.REPEAT) if (cached := cycle.cached(r))]
    if cold is None or warm is None or not saved or cold <= warm:
        return None
    return (cold - warm) / statistics.median(saved)
