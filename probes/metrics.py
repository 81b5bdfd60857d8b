"""What the probe exports, declared once. Label sets are made at the start, so that no counter is born above zero."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

from exporter.engine import TTFT_BOUNDS
from probes.outcome import ErrorClass
from probes.plan import Arm

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
TTFT = Family("apc_canary_ttft_seconds", Histogram, ARM, "Seconds to the canary's first token, as a client sees it.")
LAST_TTFT = Family("apc_canary_last_ttft_seconds", Gauge, ARM, "The same of the last cycle: the median of the arm.")
PROMPT = Family("apc_canary_prompt_tokens_total", Counter, TARGET, "Prompt tokens that the canary sent, from usage.")
CACHED = Family(
    "apc_canary_cached_tokens_total", Counter, TARGET, "Those of them that the engine had cached, from usage."
)
HIT_RATIO = Family("apc_canary_hit_ratio", Gauge, ARM, "Cached over prompt tokens of the arm in the last cycle, 0..1.")
RUNS = Family(
    "apc_canary_runs_total", Counter, (*TARGET, "result"), "Cycles by result; all but ok and failed sent nothing."
)
LAST_SUCCESS = Family(
    "apc_canary_last_success_timestamp_seconds", Gauge, TARGET, "Unix time of the last cycle without a failed request."
)
INTERVAL = Family("apc_canary_interval_seconds", Gauge, TARGET, "Seconds between two cycles, a setting.")
BUDGET = Family(
    "apc_canary_token_budget_per_minute", Gauge, TARGET, "Tokens that the canary may use in a minute, a setting."
)
PER_TOKEN = Family(
    "apc_canary_prefill_seconds_per_token",
    Gauge,
    TARGET,
    "Seconds that a token costs when it is not cached: TTFT of control minus repeat, over the tokens that repeat had cached.",
)
FAMILIES: Final = (
    REQUESTS, FAILURES, TTFT, LAST_TTFT, PROMPT, CACHED, HIT_RATIO, RUNS, LAST_SUCCESS, INTERVAL, BUDGET, PER_TOKEN,
)  # fmt: skip


class Metrics:
    """The families in a registry of their own, for the given targets."""

    def __init__(self, targets: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        self._of = {family: self._make(family) for family in FAMILIES}
        for target in targets:
            self._prepare(target)

    def add(self, family: Family, amount: float, *labels: str) -> None:
        """Raise a counter."""
        self._child(family, labels).inc(amount)  # type: ignore[attr-defined]

    def observe(self, family: Family, value: float, *labels: str) -> None:
        """Take a value into a histogram."""
        self._child(family, labels).observe(value)  # type: ignore[attr-defined]

    def set(self, family: Family, value: float | None, *labels: str) -> None:
        """Set a gauge; None takes its series away, since unknown is not zero."""
        if value is None:
            self._of[family].remove(*labels)
        else:
            self._child(family, labels).set(value)  # type: ignore[attr-defined]

    def _make(self, family: Family) -> MetricWrapperBase:
        if family.kind is Histogram:
            return Histogram(family.name, family.help, family.labels, registry=self.registry, buckets=TTFT_BOUNDS)
        return family.kind(family.name, family.help, family.labels, registry=self.registry)

    def _child(self, family: Family, labels: tuple[str, ...]) -> MetricWrapperBase:
        return self._of[family].labels(*labels)

    def _prepare(self, target: str) -> None:
        for family in (PROMPT, CACHED):
            self._child(family, (target,))
        for result in RESULTS:
            self._child(RUNS, (target, result))
        for arm in Arm:
            self._child(REQUESTS, (target, arm))
            self._child(TTFT, (target, arm))
            for reason in ErrorClass:
                self._child(FAILURES, (target, arm, reason))
