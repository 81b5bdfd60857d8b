"""What the canary's replies show: reuse broken, lost in a known way, or at odds with the engine's own counters."""

from datetime import timedelta
from typing import Final

from exporter.engine import Dialect
from exporter.snapshot import Snapshot
from exporter.window import State
from probes.evidence import CLEAR_GAIN, ENOUGH, Evidence, Reply
from probes.plan import Arm
from probes.verdict import Code, Verdict, fault, notice, warning

MANY_UNITS: Final = 10  # a prompt that long should be reused whatever is lost at its end
LARGE_BLOCK: Final = 256  # tokens: no plain model has such blocks
AFTER_MIDNIGHT: Final = timedelta(minutes=10)
COLD_ENOUGH: Final = 0.03  # seconds: below that, saved time is noise
MANY_REPLIES: Final = 6  # before a small gain is more than noise
SMALL_GAIN: Final = 0.1


def plain(length: int, unit: int) -> int:
    """Return the tokens of a prompt sent again that are found: whole units, never the last token."""
    return (length - 1) // unit * unit


def drafted(length: int, unit: int) -> int:
    """Return the same with a drafter, which gives the last unit up."""
    return max(0, (length - 1) // unit - 1) * unit


def spec_decode_no_reuse(evidence: Evidence) -> Verdict | None:
    """With drafts, nothing is found even of prompts of many units."""
    unit, told = evidence.stated_unit, evidence.told
    if not (evidence.speculative and unit and told and not any(r.cached_tokens for r in told)):
        return None
    longest = max(r.prompt_tokens or 0 for r in told)
    if longest < MANY_UNITS * unit:
        return None
    return fault(
        Code.SPEC_DECODE_NO_REUSE,
        f"With speculative decoding nothing is reused, even of {longest} tokens, {longest // unit} units: "
        "more than one unit is lost, a known regression.",
        "start the same server without --speculative-config and compare; then try another vLLM version",
        prompt_tokens=longest,
        unit_tokens=unit,
    )


def spec_decode_drops_unit(evidence: Evidence) -> Verdict | None:
    """With drafts, each prompt loses exactly one unit."""
    unit, told = evidence.observed_unit or evidence.stated_unit, [r for r in evidence.told if r.same]
    if not (evidence.speculative and unit and len(told) >= ENOUGH and any(r.cached_tokens for r in told)):
        return None
    if not all(r.cached_tokens == drafted(r.prompt_tokens or 0, unit) for r in told):
        return None
    return notice(
        Code.SPEC_DECODE_DROPS_UNIT,
        f"Speculative decoding gives up one unit of {unit} tokens per request, as predicted; the rest is reused.",
        f"keep shared prefixes above {2 * unit + 1} tokens, or weigh the drafter against {unit} tokens a request",
        lost_tokens_per_request=unit,
    )


def block_label_unreliable(evidence: Evidence) -> Verdict | None:
    """Hits come in multiples of more than the stated block size."""
    label, unit, told = evidence.stated_unit, evidence.observed_unit, [r for r in evidence.told if r.same]
    if not (label and unit and unit > label and len(told) >= ENOUGH):
        return None
    missed = [r for r in told if not r.cached_tokens and plain(r.prompt_tokens or 0, label)]
    if not missed or not all(r.cached_tokens == plain(r.prompt_tokens or 0, unit) for r in told):
        return None
    return notice(
        Code.BLOCK_LABEL_UNRELIABLE,
        f"The engine states a block of {label} tokens; what is reused comes in units of about {unit}: "
        "trust the observation.",
        f"make shared prefixes longer than {unit + 1} tokens; the label is the configured value, not the aligned one",
        label_block_size=label,
        observed_unit=unit,
    )


def boundary_last_block(evidence: Evidence) -> Verdict | None:
    """A prompt of a whole number of units gives its last unit away."""
    unit = evidence.observed_unit or evidence.stated_unit
    if not unit:
        return None
    lost = [r for r in evidence.told if _at_boundary(r, unit)]
    if not lost:
        return None
    return notice(
        Code.BOUNDARY_LAST_BLOCK,
        f"A prompt of exactly {lost[0].prompt_tokens} tokens is a whole number of units of {unit}: its last unit is "
        "computed again, since one token always is. That is no failure.",
        "test with a length that is no multiple of the unit; one token more is reused in full",
        unit_tokens=unit,
    )


def _at_boundary(reply: Reply, unit: int) -> bool:
    length = reply.prompt_tokens or 0
    return reply.same and length % unit == 0 and reply.cached_tokens == length - unit


def canary_evicted(evidence: Evidence) -> Verdict | None:
    """Reuse works at once, and the prefix does not live until the next cycle."""
    retained = [r for r in evidence.of(Arm.RETAINED) if r.cached_tokens is not None]
    if not (evidence.reuse and retained) or any(r.cached_tokens for r in retained[-ENOUGH:]):
        return None
    if evidence.raw and evidence.raw.state is State.RESTARTED:
        return None  # a new process has an empty cache
    return warning(
        Code.CANARY_EVICTED,
        "Reuse works, but the prefix survives less than the probe interval: other traffic pushes it out of the cache.",
        "give the cache more blocks: raise --gpu-memory-utilization, lower --max-model-len or --max-num-seqs, "
        "or add a KV offloading tier",
        missed_cycles=len(retained),
    )


def enabled_but_never_reused(evidence: Evidence) -> Verdict | None:
    """Lookups happen, prompts are long enough, and nothing is ever found."""
    raw, unit = evidence.raw, evidence.stated_unit
    if evidence.reuse is False:
        longest = max(r.prompt_tokens or 0 for r in evidence.told)
    elif evidence.reuse is None and raw and raw.state is State.ZERO and not evidence.lifetime_ratio:
        longest = round(evidence.mean_prompt or 0)
    else:
        return None
    if raw and raw.hits:
        return None
    if unit and longest < MANY_UNITS * unit and unit >= LARGE_BLOCK:
        return None
    if not unit and longest < MANY_UNITS * LARGE_BLOCK:
        return None
    if unit and longest <= unit:
        return None
    units = f", {longest // unit} units of {unit}" if unit else ""
    return fault(
        Code.ENABLED_BUT_NEVER_REUSED,
        f"Lookups happen and prompts are long ({longest} tokens{units}), yet nothing is ever reused.",
        "try in turn: --language-model-only (a vision tower), no --speculative-config, another vLLM version; "
        "and look for 'prefix caching' in the start-up log",
        prompt_tokens=longest,
    )


def signals_contradict(evidence: Evidence) -> Verdict | None:
    """Counters, usage and TTFT do not tell one story."""
    raw, canary = evidence.raw, evidence.canary
    told = [r for r in evidence.of(Arm.REPEAT) if r.cached_tokens is not None]
    found = sum(r.cached_tokens or 0 for r in told)
    moved = raw is not None and (raw.queries or 0) >= canary.prompt > 0
    story = ""
    if raw and moved and canary.cached and raw.hits == 0 and not _external_hits(evidence):
        story = f"usage reports {canary.cached:.0f} cached tokens, the engine's counters none"
    elif len(told) >= ENOUGH and not found and _falls(evidence):
        story = f"a repeated prompt's TTFT falls by {evidence.gain or 0:.0%}, while usage reports nothing cached"
    elif raw and moved and len(told) >= ENOUGH and not found and raw.hits and raw.queries == canary.prompt:
        story = f"the counters show {raw.hits:.0f} tokens found, usage none"
    if not story:
        return None
    return fault(
        Code.SIGNALS_CONTRADICT,
        f"The signals contradict each other: {story}. One of them is wrong.",
        "trust TTFT and compare the vLLM version with its known issues; hit-rate panels of this engine may be wrong",
    )


def _falls(evidence: Evidence) -> bool:
    cold = evidence.median_ttft(Arm.CONTROL)
    return evidence.gain is not None and evidence.gain >= CLEAR_GAIN and cold is not None and cold >= COLD_ENOUGH


def _external_hits(evidence: Evidence) -> float:
    def total(snapshot: Snapshot | None) -> float:
        return sum(cache.external_hit or 0.0 for cache in snapshot.caches) if snapshot else 0.0

    return total(evidence.after) - total(evidence.before)


def external_tier_only(evidence: Evidence) -> Verdict | None:
    """What is reused comes from a KV connector; the device's own cache finds nothing."""
    raw = evidence.raw
    external = _external_hits(evidence)
    if not (raw and raw.queries and raw.hits == 0 and external > 0):
        return None
    return warning(
        Code.EXTERNAL_TIER_ONLY,
        f"All {external:.0f} tokens that were reused came from the external KV tier; the device's cache found none.",
        "look at evictions and KV usage: the device's cache is too small, or was emptied",
        external_hit_tokens=external,
    )


def usage_details_off(evidence: Evidence) -> Verdict | None:
    """The server answers and never says how much was cached."""
    if evidence.after and evidence.after.dialect is Dialect.VLLM_V0:
        return None  # it never does, whatever its flags
    warm = [r for r in evidence.of(Arm.REPEAT) if r.prompt_tokens]
    if len(warm) < ENOUGH or any(r.cached_tokens is not None for r in evidence.replies):
        return None
    return notice(
        Code.USAGE_DETAILS_OFF,
        "The server never reports cached tokens, so the canary judges by TTFT and counters alone.",
        "start vLLM with --enable-prompt-tokens-details",
        hint="--enable-prompt-tokens-details",
    )


def date_rollover(evidence: Evidence) -> Verdict | None:
    """One miss right after midnight, among hits: a date stands in the prompt."""
    seen = [r for r in evidence.told if r.at is not None]
    most = max((r.cached_tokens or 0 for r in seen), default=0)
    missed = [r for r in seen if (r.cached_tokens or 0) < most / 2]
    if len(seen) <= ENOUGH or len(missed) != 1 or missed[0] in (seen[0], seen[-1]):
        return None
    at = missed[0].at
    assert at
    if at - at.replace(hour=0, minute=0, second=0, microsecond=0) > AFTER_MIDNIGHT:
        return None
    return notice(
        Code.DATE_ROLLOVER,
        f"The one miss came at {at:%H:%M}, right after local midnight: chat template or system prompt holds the date.",
        "move the date behind the shared text, or warm the prefix once after midnight",
    )


def reuse_saves_little(evidence: Evidence) -> Verdict | None:
    """Tokens are reused and the first token comes hardly sooner."""
    gain, cold = evidence.gain, evidence.median_ttft(Arm.CONTROL)
    known = any(r.cached_tokens for r in evidence.told)
    if not (known and gain is not None and cold and cold >= COLD_ENOUGH and gain < SMALL_GAIN):
        return None
    if len(evidence.of(Arm.REPEAT)) < MANY_REPLIES:
        return None
    sooner = f"only {gain:.0%}" if gain > 0 else "no"
    return notice(
        Code.REUSE_SAVES_LITTLE,
        f"Tokens are reused, yet the first token comes {sooner} sooner: the floor under a warm request is the host "
        "(kernel launches in eager mode, queueing, network), not the prefill.",
        "start vLLM without --enforce-eager, and compare apc_queue_seconds with apc_prefill_seconds",
        gain=gain,
        cold_ttft_seconds=cold,
    )
