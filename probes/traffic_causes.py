"""What the traffic's counters show, read in the light of the canary."""

from typing import Final

from exporter.window import Quality, State
from probes.canary_causes import LARGE_BLOCK, MANY_UNITS
from probes.evidence import Evidence
from probes.verdict import Code, Verdict, fault, info, notice, warning

FEW_UNITS: Final = 2.5  # units found per request: the head of the prompt and no more
EVEN: Final = 2.0  # the busiest engine has at most so many times the lookups of the idlest
DECODE_SHARE: Final = 20.0  # a request lasts so many times its TTFT: reuse does not show in its whole time


def apc_disabled(evidence: Evidence) -> Verdict | None:
    """Prompts flow and are not looked up, and not because each of them asks for that."""
    raw, stated = evidence.raw, evidence.stated_enabled
    unseen = raw is not None and raw.state is State.NOT_LOOKED_UP
    canary_unseen = unseen and evidence.canary.prompt > 0  # it never asks to be skipped
    gauge = raw is not None and raw.state in {State.APC_DISABLED, State.UNKNOWN} and stated is False
    only_said = raw is None and stated is False and not evidence.reuse
    if not ((unseen and stated is False) or canary_unseen or gauge or only_said):
        return None
    prompt = raw.prompt if raw and raw.prompt else 0
    if stated:
        sentence = (
            f"{prompt:.0f} prompt tokens, the canary's with them, and no lookup: caching is off in the engine core, "
        )
        sentence += "though the front end states that it is on (a model that does not support it)."
    else:
        sentence = "Prefix caching is disabled on this server" + (
            f": {prompt:.0f} prompt tokens, no lookup." if prompt else "."
        )
    remedy = "start vLLM with --enable-prefix-caching, and look for 'enable_prefix_caching' in its start-up log"
    return fault(Code.APC_DISABLED, sentence, remedy, prompt_tokens=prompt)


def lookup_skipped(evidence: Evidence) -> Verdict | None:
    """Caching is on, and each request of the traffic asks not to be looked up."""
    organic = evidence.organic
    if not (organic and organic.state is State.NOT_LOOKED_UP and organic.prompt):
        return None
    return warning(
        Code.LOOKUP_SKIPPED,
        f"Caching is enabled, but every request skips the lookup: {organic.prompt:.0f} prompt tokens, no query "
        "(prompt_logprobs, echo with logprobs, or pooling).",
        "send requests without prompt_logprobs and echo+logprobs; pooling requests cannot be reused",
        prompt_tokens=organic.prompt,
    )


def prefix_shorter_than_block(evidence: Evidence) -> Verdict | None:
    """Prompts are shorter than what is reused at a time."""
    organic, unit, mean = evidence.organic, evidence.observed_unit or evidence.stated_unit, evidence.mean_prompt
    if not (organic and organic.state is State.ZERO and unit and evidence.reuse is not False):
        return None
    known = mean is not None and mean <= unit
    likely = mean is None and unit >= LARGE_BLOCK
    if not (known or likely):
        return None
    length = f"the mean prompt has {mean:.0f} tokens" if mean is not None else "how long prompts are is not exposed"
    return warning(
        Code.PREFIX_SHORTER_THAN_BLOCK,
        f"The shared prefix is shorter than the block ({unit} tokens): nothing can be reused; {length}.",
        f"make the shared prefix at least {unit + 1} tokens long",
        min_prefix_tokens=unit + 1,
        block_size=unit,
    )


def dp_spread(evidence: Evidence) -> Verdict | None:
    """The same prefix is looked up on several engines, each with a cache of its own."""
    organic = evidence.organic
    if not (organic and organic.state is State.ZERO and evidence.engines > 1 and evidence.before and evidence.after):
        return None
    earlier = {(cache.model_name, cache.engine): cache.queried or 0 for cache in evidence.before.caches}
    asked = [(c.queried or 0) - earlier.get((c.model_name, c.engine), 0) for c in evidence.after.caches]
    if min(asked) <= 0 or max(asked) > EVEN * min(asked):
        return None
    return warning(
        Code.DP_SPREAD,
        f"The same prefix was looked up on {len(asked)} engines, each with a cache of its own, and found on none.",
        "route by session or prefix: send X-data-parallel-rank, or use a prefix-aware load balancer",
        engines=len(asked),
    )


def prefix_varies(evidence: Evidence) -> Verdict | None:
    """The canary hits and the traffic does not: its prompts differ near their beginning."""
    organic, unit, mean = evidence.organic, evidence.stated_unit, evidence.mean_prompt
    if not (organic and evidence.reuse and organic.queries):
        return None
    if organic.state is not State.ZERO:
        per_request = (organic.hits or 0) / organic.queries * mean if mean else None
        if not (
            unit and mean and per_request is not None and per_request < FEW_UNITS * unit and mean > MANY_UNITS * unit
        ):
            return None
    found = f"The canary's prefix is reused, the traffic's is not ({organic.hits or 0:.0f} of {organic.queries:.0f}): "
    if evidence.survival_unknown:
        return notice(
            Code.UNKNOWN,
            f"{found}either something varies early in its prompts, or the cache is too small to hold them.",
            "wait for the next cycle, which tells whether a prefix stays; or python -m probes doctor --pause 60",
        )
    return warning(
        Code.PREFIX_VARIES,
        f"{found}something varies near the beginning of its prompts.",
        "python -m probes doctor --prompt A.txt --prompt B.txt shows where two part; move that behind the shared text",
        hit_tokens=organic.hits or 0,
        queried_tokens=organic.queries,
    )


def preemption_inflation(evidence: Evidence) -> Verdict | None:
    """More lookups than prompt tokens: some requests were looked up again and found themselves."""
    organic = evidence.organic
    if not (organic and organic.quality is Quality.INFLATED and organic.queries and organic.prompt):
        return None
    excess = organic.queries - organic.prompt
    hits = organic.hits or 0
    lower = max(0.0, hits - excess) / organic.prompt
    return warning(
        Code.PREEMPTION_INFLATION,
        f"{organic.queries:.0f} tokens were looked up for {organic.prompt:.0f} of prompts: up to "
        f"{min(hits, excess):.0f} of the hits can be of requests looked up again; the rate is at least {lower:.1%}.",
        "give the cache more blocks, so that requests are not preempted; vLLM 0.27 and later count each request once",
        lower_bound_hit_rate=lower,
        excess_tokens=excess,
    )


def divergence(evidence: Evidence) -> Verdict | None:
    """Two prompts that should share their beginning part early."""
    found = evidence.divergence
    if found is None or found.first_difference_char is None:
        return None
    suspects = ", ".join(f"{s.kind} ({s.left!r} and {s.right!r})" for s in found.suspects) or "nothing that is usual"
    return warning(
        Code.VOLATILE_PROMPT_HEAD,
        f"The prompts part at character {found.first_difference_char}, about token {found.token_ish}: {suspects}. "
        f"{found.left_excerpt!r} against {found.right_excerpt!r}.",
        "move what varies behind the shared text, to the last message",
        first_difference_char=found.first_difference_char,
    )


def max_tokens_hides_it(evidence: Evidence) -> Verdict | None:
    """Whole requests last so long that their first token's gain does not show."""
    if not (evidence.after and evidence.reuse):
        return None
    ttft = [cache.ttft for cache in evidence.after.caches if cache.ttft and cache.ttft.count]
    whole = [cache.e2e for cache in evidence.after.caches if cache.e2e and cache.e2e.count]
    if not (ttft and whole):
        return None
    first, last = (sum(h.sum for h in found) / sum(h.count for h in found) for found in (ttft, whole))
    if not first or last < DECODE_SHARE * first:
        return None
    return info(
        Code.MAX_TOKENS_HIDES_IT,
        f"A request lasts {last:.2f} s, its first token comes after {first:.3f} s: reuse hardly shows there.",
        "compare TTFT, not totals; to see the effect send max_tokens 32",
        ttft_seconds=first,
        request_seconds=last,
    )


def no_traffic(evidence: Evidence) -> Verdict | None:
    """Nothing but the canary was asked."""
    organic = evidence.organic
    if not (organic and organic.state is State.NO_TRAFFIC):
        return None
    return info(Code.NO_TRAFFIC, "No traffic but the canary's: there is no hit rate, and none is missing.")
