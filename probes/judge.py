"""The order in which causes are looked for. A cause found stops the search for others of its kind."""

from collections.abc import Callable, Iterable
from typing import Final

from exporter.engine import Unit
from exporter.window import State
from probes import canary_causes, reach_causes, traffic_causes, unit_causes
from probes.evidence import ENOUGH, Evidence
from probes.verdict import Code, Severity, Verdict

Cause = Callable[[Evidence], Verdict | None]

# Nothing else can be known while one of these holds.
REACH: Final[tuple[Cause, ...]] = (
    reach_causes.proxy_intercepted,
    reach_causes.dns,
    reach_causes.localhost_in_container,
    reach_causes.bound_to_loopback,
    reach_causes.starting_or_down,
    reach_causes.auth_login_page,
)
# Each stands on its own.
REMARKS: Final[tuple[Cause, ...]] = (
    reach_causes.metrics_unusable,
    reach_causes.canary_failing,
    canary_causes.signals_contradict,
    canary_causes.external_tier_only,
    unit_causes.boundary_last_block,
    canary_causes.usage_details_off,
    canary_causes.date_rollover,
    traffic_causes.preemption_inflation,
    traffic_causes.divergence,
    traffic_causes.max_tokens_hides_it,
    traffic_causes.no_traffic,
)
# Why reuse is not what it could be, in the order of the checklist; the first that fits is the cause.
REUSE: Final[tuple[Cause, ...]] = (
    traffic_causes.apc_disabled,
    traffic_causes.lookup_skipped,
    unit_causes.spec_decode_no_reuse,
    unit_causes.spec_decode_drops_unit,
    unit_causes.block_label_unreliable,
    canary_causes.canary_spread,
    canary_causes.canary_evicted,
    canary_causes.head_varies,
    traffic_causes.prefix_shorter_than_block,
    traffic_causes.dp_spread,
    canary_causes.enabled_but_never_reused,
    canary_causes.adapter_never_reused,
    traffic_causes.prefix_varies,
    traffic_causes.little_found,
    canary_causes.reuse_saves_little,
)
UNEXPLAINED: Final = {Severity.FAULT, Severity.WARNING, Severity.NOTICE}


def judge(evidence: Evidence) -> list[Verdict]:
    """Return the verdicts, the one to act on first. There is always at least one."""
    unreachable = _first(REACH, evidence)
    if unreachable:
        return [unreachable]
    found = [verdict for cause in REMARKS if (verdict := cause(evidence))]
    cause = _first(REUSE, evidence)
    found += [cause] if cause else []
    if not any(verdict.severity in UNEXPLAINED for verdict in found):
        found.append(_healthy(evidence) or _unknown(evidence))
    return sorted(found, key=lambda verdict: verdict.severity)


def _first(causes: Iterable[Cause], evidence: Evidence) -> Verdict | None:
    return next((verdict for cause in causes if (verdict := cause(evidence))), None)


def _healthy(evidence: Evidence) -> Verdict | None:
    """Reuse was seen to work: by the canary, or by the traffic where no canary ran, or by what two prompts share."""
    organic, ratio = evidence.organic, evidence.found_share
    tokens = "blocks" if organic and organic.unit is Unit.BLOCKS else "prompt tokens"
    if evidence.reuse and _found_lately(evidence):
        gain = evidence.gain
        saved = f", and a hit's first token comes {gain:.0%} sooner than a miss's" if gain and gain > 0 else ""
        traffic = f"; {ratio:.1%} of the traffic's {tokens} were found" if ratio is not None else ""
        models = len({reply.model for reply in evidence.replies})
        adapters = "; adapters share no cache, nor are the engine's counters split by them" if models > 1 else ""
        sentence = f"A prompt with a known prefix is reused{saved}{traffic}{adapters}."
    elif ratio and not evidence.replies:
        sentence = f"{ratio:.1%} of the {tokens} were found in the cache; no canary was sent."
    elif evidence.divergence and not (evidence.replies or evidence.after):
        sentence = evidence.divergence.sentence
    else:
        return None
    numbers = {"hit_ratio": ratio} if ratio is not None else {}
    return Verdict(Code.HEALTHY, Severity.OK, sentence, "nothing to do", numbers)


def _found_lately(evidence: Evidence) -> bool:
    """Whether it still works; of prompts of many lengths the last may be the short ones."""
    lately = evidence.repeats[-ENOUGH:]
    return not lately or any(reply.same or evidence.hit(reply) for reply in lately)


def _unknown(evidence: Evidence) -> Verdict:
    missing = [*_missing_of_metrics(evidence)]
    if not evidence.replies:
        missing.append("replies to canaries")
    elif evidence.reuse is None:
        missing.append("cached_tokens in usage (--enable-prompt-tokens-details), or more cycles")
    elif evidence.reuse is False:
        missing.append("longer prompts, since what was sent again was not found and blocks may be larger than stated")
    else:
        missing.append("more cycles, since what was found before was not found of late")
    sentence = "What is known does not tell whether reuse works" + (
        f": missing are {', '.join(missing)}." if missing else "."
    )
    remedy = "python -m probes doctor --base-url http://localhost:8000, which sends three canary cycles"
    return Verdict(Code.UNKNOWN, Severity.UNKNOWN, sentence, remedy)


def _missing_of_metrics(evidence: Evidence) -> Iterable[str]:
    """Yield what keeps two readings of the metrics from telling."""
    if not evidence.after:
        yield "the engine's /metrics"
    elif not evidence.before:
        yield "a second /metrics some time after the first"
    elif evidence.raw and evidence.raw.state is State.RESTARTED:
        yield "a window without a restart (counters restarted between the two /metrics)"
    elif evidence.raw and evidence.raw.state is State.INVALID:
        yield "counters that can be true (hits exceed queries)"
    elif evidence.raw and evidence.raw.state is State.GAUGE_ONLY:
        ratio = evidence.raw.hit_ratio
        shown = f"its {ratio:.1%} is of all blocks" if ratio is not None else "one each of several caches"
        yield f"counters (this engine has a gauge only, and {shown} since its start)"
