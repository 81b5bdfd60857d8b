"""What the canary's replies show: reuse broken, lost in a known way, or at odds with the engine's own counters."""

from datetime import timedelta
from typing import Final

from exporter.engine import Dialect
from exporter.window import State
from probes.evidence import CLEAR_GAIN, ENOUGH, MANY_UNITS, Evidence
from probes.plan import Arm
from probes.units import LARGE_BLOCK, LARGEST_BLOCK
from probes.verdict import Code, Severity, Verdict, fault, notice, warning

AFTER_MIDNIGHT: Final = timedelta(minutes=10)
COLD_ENOUGH: Final = 0.03  # seconds: below that, saved time is noise
MANY_REPLIES: Final = 6  # before a small gain is more than noise
SMALL_GAIN: Final = 0.1
MOSTLY: Final = 0.9  # of the tokens found: the rest does not count


def canary_evicted(evidence: Evidence) -> Verdict | None:
    """Reuse works at once, and the prefix does not live until the next cycle."""
    found = {r.model for r in evidence.repeats if evidence.hit(r)}
    retained = [r for r in evidence.of(Arm.RETAINED) if r.cached_tokens is not None and r.model in found]
    if not (evidence.reuse and retained) or any(map(evidence.hit, retained[-ENOUGH:])):
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


def canary_spread(evidence: Evidence) -> Verdict | None:
    """Of prompts sent again at once some are found and some are not: several caches answer in turn."""
    repeats = [r for r in evidence.repeats if not r.same]
    missed = sum(not evidence.hit(r) for r in repeats)
    # One that is lost is lost by chance; and a single engine has a single cache.
    if missed < ENOUGH or not any(map(evidence.hit, repeats[-ENOUGH:])) or evidence.engines == 1:
        return None
    if len({r.model for r in repeats}) > 1:
        return None
    caches = f"{evidence.engines} engines, each with a cache" if evidence.engines else "several engines, each a cache"
    return Verdict(
        Code.DP_SPREAD,
        Severity.WARNING if evidence.engines else Severity.NOTICE,
        f"Of {len(repeats)} prompts sent again at once {missed} missed: it looks like {caches} of its own.",
        "route by session or prefix: send X-data-parallel-rank, or use a prefix-aware load balancer",
        {"engines": evidence.engines} if evidence.engines else {},
    )


def head_varies(evidence: Evidence) -> Verdict | None:
    """Of prompts sent again only the first words are found, each time: the server puts something before the rest."""
    repeats = [r for r in evidence.repeats if r.prompt_tokens]
    found = max((r.cached_tokens or 0 for r in repeats), default=0)
    if evidence.reuse is not False or not found or any(not r.cached_tokens for r in repeats):
        return None
    longest = max(r.prompt_tokens or 0 for r in repeats)
    return warning(
        Code.VOLATILE_PROMPT_HEAD,
        f"Of the canary's own prompt of {longest} tokens, sent again, no more than {found} are found, each time: the "
        "chat template, or a gateway, puts something that varies before the rest, such as the time.",
        "look for strftime_now or a date in the chat template, and move it behind the shared text",
        cached_tokens=found,
        prompt_tokens=longest,
    )


def enabled_but_never_reused(evidence: Evidence) -> Verdict | None:
    """Lookups happen, prompts are long enough, and nothing is ever found."""
    raw, unit = evidence.raw, evidence.sure_unit
    if evidence.external_hits or (raw and raw.hits) or not evidence.looked_up:
        return None
    if evidence.reuse is False:
        repeats = evidence.repeats
        longest = max(r.prompt_tokens or 0 for r in repeats)
        if any(r.cached_tokens for r in repeats) or not evidence.surely_long(longest):
            return None
    elif evidence.reuse is None and raw and raw.state is State.ZERO and not evidence.ever_found:
        longest = round(evidence.mean_prompt or 0)
        # Traffic that shares nothing looks alike: only where a model is known for it is it told without a canary.
        suspect = evidence.hybrid or (unit is not None and unit >= LARGE_BLOCK)
        if not suspect or longest < MANY_UNITS * (unit or LARGEST_BLOCK):
            return None
    else:
        return None
    units = f", {longest // unit} units of {unit}" if unit else ""
    return fault(
        Code.ENABLED_BUT_NEVER_REUSED,
        f"Lookups happen and prompts are long ({longest} tokens{units}), yet nothing is ever reused.",
        "try in turn: --language-model-only (a vision tower), no --speculative-config, another vLLM version; "
        "and look for 'prefix caching' in the start-up log",
        prompt_tokens=longest,
    )


def adapter_never_reused(evidence: Evidence) -> Verdict | None:
    """One model of a server is never found, while another is: each adapter has a cache of its own."""
    by_model: dict[str, list[bool]] = {}
    for reply in evidence.repeats:
        by_model.setdefault(reply.model, []).append(evidence.hit(reply))
    never = [model for model, hits in by_model.items() if len(hits) >= ENOUGH and not any(hits)]
    if not (evidence.reuse and never):
        return None
    return warning(
        Code.ENABLED_BUT_NEVER_REUSED,
        f"Prompts to {', '.join(never)} are never found, though another model's are: adapters share no cache, and the "
        "engine's counters are not split by adapter.",
        "send the same adapter, and the same cache_salt, again; then try another vLLM version",
        models=", ".join(never),
    )


def signals_contradict(evidence: Evidence) -> Verdict | None:
    """Counters, usage and TTFT do not tell one story."""
    raw, canary = evidence.raw, evidence.canary
    told = [r for r in evidence.of(Arm.REPEAT) if r.cached_tokens is not None]
    found = sum(r.cached_tokens or 0 for r in told)
    moved = raw is not None and (raw.queries or 0) >= canary.prompt > 0
    story = ""
    if raw and moved and canary.cached and raw.hits == 0 and not (evidence.external_hits or _unseen_tier(evidence)):
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


def _unseen_tier(evidence: Evidence) -> bool:
    """Whether a KV connector may supply tokens that the engine has no counter for, as before vLLM 0.11."""
    caches = evidence.after.caches if evidence.after else ()
    connector = evidence.log is not None and "kv_transfer_config" in evidence.log.flags
    return connector and all(cache.external_hit is None for cache in caches)


def external_tier_only(evidence: Evidence) -> Verdict | None:
    """What is reused comes from a KV connector; the device's own cache finds hardly anything."""
    raw, external = evidence.raw, evidence.external_hits
    if not (raw and raw.queries and external and raw.hits is not None):
        return None
    if external < MOSTLY * (external + raw.hits):
        return None
    found = f"{raw.hits:.0f}" if raw.hits else "none"
    return Verdict(
        Code.EXTERNAL_TIER_ONLY,
        Severity.NOTICE if raw.hits else Severity.WARNING,
        f"{'Nearly all' if raw.hits else 'All'} tokens that were reused, {external:.0f}, came from the external KV "
        f"tier; the device's cache found {found}.",
        "look at evictions and KV usage: the device's cache is too small, or was emptied",
        {"external_hit_tokens": external},
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
    replies = [r for r in evidence.of(Arm.REPEAT, Arm.RETAINED) if r.cached_tokens is not None]
    seen = [(r.at, evidence.hit(r)) for r in replies if r.at is not None]
    missed = [at for at, hit in seen if not hit]
    if len(seen) <= ENOUGH or len(missed) != 1 or not (seen[0][1] and seen[-1][1]):
        return None
    (at,) = missed
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
    known = any(map(evidence.hit, evidence.told))
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
