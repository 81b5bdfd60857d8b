"""What the size of hits shows: units lost in a known way, or larger than the engine states."""

from exporter.window import State
from probes.evidence import ENOUGH, MANY_UNITS, Evidence, Reply
from probes.units import LARGE_BLOCK, drafted, plain
from probes.verdict import Code, Verdict, fault, notice


def spec_decode_no_reuse(evidence: Evidence) -> Verdict | None:
    """With drafts, nothing is found even of prompts of many units."""
    unit, told = evidence.sure_unit, evidence.told
    if not (evidence.speculative and unit and told and not any(r.cached_tokens for r in told)):
        return None
    longest = max(r.prompt_tokens or 0 for r in told)
    # One reply of many units tells as much as several of some.
    if longest < MANY_UNITS * unit and not (evidence.reuse is False and evidence.surely_long(longest)):
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
    """With drafts, each prompt loses exactly one unit, and a short one all it could have."""
    unit = evidence.observed_unit or evidence.sure_unit
    if not (evidence.speculative and unit):
        return None
    told = [(r.prompt_tokens or 0, r.cached_tokens or 0) for r in evidence.told if r.same]
    predicted = len(told) >= ENOUGH and all(found == drafted(length, unit) for length, found in told)
    lost = any(plain(length, unit) for length, _ in told)
    if not (predicted and lost) and not _short_for_a_drafter(evidence, unit):
        return None
    rest = "the rest is reused" if any(found for _, found in told) else "prompts of less than two have nothing left"
    return notice(
        Code.SPEC_DECODE_DROPS_UNIT,
        f"Speculative decoding gives up one unit of {unit} tokens per request, as predicted; {rest}.",
        f"keep shared prefixes above {2 * unit + 1} tokens, or weigh the drafter against {unit} tokens a request",
        lost_tokens_per_request=unit,
    )


def _short_for_a_drafter(evidence: Evidence, unit: int) -> bool:
    """Whether the traffic's prompts have one large unit, which the drafter gives up."""
    organic, mean = evidence.organic, evidence.mean_prompt
    zero = organic is not None and organic.state is State.ZERO and evidence.reuse is None
    return zero and unit >= LARGE_BLOCK and mean is not None and unit < mean <= 2 * unit


def block_label_unreliable(evidence: Evidence) -> Verdict | None:
    """Hits come in multiples of more than the stated block size."""
    label, unit, told = evidence.stated_unit, evidence.observed_unit, [r for r in evidence.told if r.same]
    if not (label and unit and unit > label and len(told) >= ENOUGH):
        return None
    missed = [r for r in told if not r.cached_tokens and plain(r.prompt_tokens or 0, label)]
    sizes = {r.cached_tokens for r in told if r.cached_tokens}
    if not missed or not (evidence.hybrid or len(sizes) >= ENOUGH):
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
    unit = evidence.observed_unit or evidence.sure_unit
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
