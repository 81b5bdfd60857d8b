"""What is done to each engine of the fault lab, and which alerts must be told of it, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from demo.traffic import Plan


def users(rate: float = 2.0, poison: str = "none", sessions: int = 4, max_tokens: int = 8) -> Plan:
    """Return traffic whose prompts share their head, unless it is poisoned, at so many requests/s."""
    return Plan(url="", model="", rate=rate, poison=poison, sessions=sessions, max_tokens=max_tokens)


HEADS: Final = "timestamp"  # the poison: a time before the shared text


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A target: its engine's flags, its traffic, the fault, and what must be told, nothing else.

    `faults` are those of demo/faults.py. With `restarted`, the engine is ended and started with these flags.
    """

    target: str
    means: str
    flags: tuple[str, ...] = ()
    traffic: tuple[Plan, ...] = (users(),)
    faults: Mapping[str, object] = field(default_factory=dict)
    restarted: tuple[str, ...] | None = None
    then: tuple[Plan, ...] | None = None  # the traffic while the fault lasts
    told: frozenset[str] = frozenset()
    at_once: bool = False  # the fault is in flags and traffic from the start


def _of(target: str, means: str, *told: str, **changes: Any) -> Scenario:
    return Scenario(target=target, means=means, told=frozenset(told), **changes)


FAULTS: Final = (
    _of("zero", "a time heads each prompt", "ApcHitRateZero", then=(users(poison=HEADS),)),
    _of("collapsed", "a time heads three of four prompts", "ApcHitRateCollapsed",
        traffic=(users(6.0),), then=(users(1.5), users(4.5, HEADS))),
    _of("down", "the engine is gone", "ApcEngineDown", faults={"restart": 1e6}),
    _of("wedge", "requests are taken and never answered", "ApcEngineStalled", faults={"wedge": True}),
    _of("dead", "the core is dead behind a live page", "ApcEngineStalled", faults={"dead": True}),
    _of("key", "the API refuses the key", "ApcProbeFailing", faults={"unauthorized": True}),
    _of("page", "/metrics is a web page", "ApcMetricsMissing", faults={"metrics_html": True}),
    _of("off", "restarted with prefix caching off", "ApcCanaryNoReuse", restarted=("--no-prefix-caching",)),
    _of("skipped", "no prompt is looked up", "ApcCanaryNoReuse", faults={"lookup_skipped": True}),
    _of("renamed", "a release has renamed a field", "ApcFieldMissing", at_once=True,
        flags=("--fault", "rename=kv_usage")),
    _of("evicted", "the cache is smaller than its traffic", "ApcPrefixEvicted", at_once=True,
        flags=("--blocks", "700"), traffic=(users(2.0), users(3.0, HEADS))),
)  # fmt: skip
HEALTHY: Final = (
    _of("steady", "nothing"),
    _of("idle", "the canary alone", traffic=()),
    _of("trickle", "a request now and then, with nothing in common", traffic=(users(0.1, HEADS),)),
    _of("restarting", "two restarts"),
)
SCENARIOS: Final = (*FAULTS, *HEALTHY)
