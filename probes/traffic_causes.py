"""What the traffic's counters show, read in the light of the canary."""

from collections import defaultdict
from typing import Final

from exporter.snapshot import Cache
from exporter.window import Quality, State
from probes.evidence import MANY_UNITS, MORE_LOOKUPS, Evidence
from probes.units import LARGE_BLOCK
from probes.verdict import Code, Severity, Verdict, fault, info, notice, warning

FEW_UNITS: Final = 2.5  # units found per request: the head of the prompt and no more
EVEN: Final = 2.0  # the busiest engine has at most so many times the lookups of the idlest
FEW_REQUESTS: Final = 2  # of an engine: one prefix misses once on each
FEW_TOKENS: Final = 100_000  # the same where requests are not counted
DECODE_SHARE: Final = 20.0  # a request lasts so many times its TTFT: reuse does not show in its whole time
LITTLE: Final = 0.05  # of the prompt tokens found: less does not show that reuse works
FALLEN: Final = 0.5  # of the ratio since the start


def apc_disabled(evidence: Evidence) -> Verdict | None:
    """Prompts flow and are not looked up, and not because each of them asks for that."""
    raw, stated = evidence.raw, evidence.stated_enabled
    unseen = raw is not None and raw.state is State.NOT_LOOKED_UP
    canary_unseen = unseen and evidence.canary.prompt > 0  # it never asks to be skipped
    off = stated is False and not evidence.looked_up and not evidence.reuse
    if not (off or canary_unseen):
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
    return fault(Code.APC_DISABLED, sentence, SWITCH_ON, prompt_tokens=prompt)


SWITCH_ON: Final = "start vLLM with --enable-prefix-caching, and look for 'enable_prefix_caching' in its start-up log"


def lookup_skipped(evidence: Evidence) -> Verdict | None:
    """Caching is on, and each request of the traffic asks not to be looked up; or it is off, if nothing says so."""
    organic = evidence.organic
    if not (organic and organic.state is State.NOT_LOOKED_UP and organic.prompt):
        return None
    seen = f"{organic.prompt:.0f} prompt tokens, no query"
    if evidence.stated_enabled is None and not evidence.reuse:
        return warning(
            Code.APC_DISABLED,
            f"Nothing is looked up ({seen}): caching is off, or every request skips the lookup (prompt_logprobs, echo "
            "with logprobs, or pooling).",
            SWITCH_ON,
            prompt_tokens=organic.prompt,
        )
    return warning(
        Code.LOOKUP_SKIPPED,
        f"Caching is enabled, but every request skips the lookup: {seen} "
        "(prompt_logprobs, echo with logprobs, or pooling).",
        "send requests without prompt_logprobs and echo+logprobs; pooling requests cannot be reused",
        prompt_tokens=organic.prompt,
    )


def prefix_shorter_than_block(evidence: Evidence) -> Verdict | None:
    """Prompts are shorter than what is reused at a time, or hardly longer."""
    organic, unit, mean = evidence.organic, evidence.observed_unit or evidence.stated_unit, evidence.mean_prompt
    if not (organic and organic.state is State.ZERO and unit and evidence.reuse is not False):
        return None
    known = mean is not None and mean <= unit
    likely = unit >= LARGE_BLOCK and (mean is None or mean < 2 * unit) and not evidence.ever_found
    if evidence.external_hits or not (known or likely):
        return None
    length = f"the mean prompt has {mean:.0f} tokens" if mean is not None else "how long prompts are is not exposed"
    longer = mean is not None and not known
    shared = "The shared prefix, if there is one," if longer else "The shared prefix"
    return Verdict(
        Code.PREFIX_SHORTER_THAN_BLOCK,
        Severity.NOTICE if longer else Severity.WARNING,
        f"{shared} is shorter than the block ({unit} tokens): nothing can be reused; {length}.",
        f"make the shared prefix at least {unit + 1} tokens long",
        {"min_prefix_tokens": unit + 1, "block_size": unit},
    )


def dp_spread(evidence: Evidence) -> Verdict | None:
    """The same prefix is looked up on several engines, each with a cache of its own, and misses once on each."""
    if evidence.reuse or evidence.external_hits or not (evidence.before and evidence.after):
        return None
    earlier = {(cache.model_name, cache.engine): cache for cache in evidence.before.caches}
    by_model: dict[str, list[tuple[Cache, Cache]]] = defaultdict(list)
    for cache in evidence.after.caches:
        if before := earlier.get((cache.model_name, cache.engine)):
            by_model[cache.model_name].append((before, cache))
    engines = max((_spread_over(pairs) for pairs in by_model.values()), default=0)
    if engines < 2:  # noqa: PLR2004
        return None
    return warning(
        Code.DP_SPREAD,
        f"The same prefix was looked up on {engines} engines, each with a cache of its own, and found on none.",
        "route by session or prefix: send X-data-parallel-rank, or use a prefix-aware load balancer",
        engines=engines,
    )


def _spread_over(pairs: list[tuple[Cache, Cache]]) -> int:
    """Return the engines of a model that were asked, if alike, a request or two each, and in vain; else 0."""
    asked = [(before, after) for before, after in pairs if (after.queried or 0) > (before.queried or 0)]
    if not asked or any((after.hit or 0) != (before.hit or 0) for before, after in pairs):
        return 0
    tokens = [(after.queried or 0) - (before.queried or 0) for before, after in asked]
    requests = [after.ttft.count - before.ttft.count for before, after in asked if after.ttft and before.ttft]
    few = max(requests) <= FEW_REQUESTS if requests else max(tokens) <= FEW_TOKENS
    return len(asked) if few and max(tokens) <= EVEN * min(tokens) else 0


def prefix_varies(evidence: Evidence) -> Verdict | None:
    """The canary hits and the traffic does not: its prompts differ near their beginning."""
    organic, unit, mean, share = evidence.organic, evidence.stated_unit, evidence.mean_prompt, evidence.found_share
    if not (organic and evidence.reuse and organic.queries and share is not None):
        return None
    # A unit or two of a long prompt are its head, such as the chat template's.
    head = unit and mean and share * mean < FEW_UNITS * unit and mean > MANY_UNITS * unit
    if share and not head:
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


def little_found(evidence: Evidence) -> Verdict | None:
    """The traffic's tokens are hardly found, now or any more, and no canary tells whether they could be."""
    organic, share, lifetime = evidence.organic, evidence.found_share, evidence.lifetime_ratio
    if evidence.reuse is not None or share is None or not (organic and organic.queries):
        return None
    if share >= max(LITTLE, FALLEN * (lifetime or 0.0)):
        return None
    mean = evidence.mean_prompt
    each = f", about {share * mean:.0f} of the {mean:.0f} of a request" if mean else ""
    earlier = f"; {lifetime:.1%} since the engine's start" if lifetime is not None else ""
    return notice(
        Code.UNKNOWN,
        f"Of {organic.queries:.0f} {organic.unit} looked up in the window {share:.1%} were found{each}{earlier}: the "
        "prompts share no more than that, something varies early in them, the cache is too small to hold them, or "
        "reuse does not work.",
        "python -m probes doctor --base-url http://localhost:8000 sends a canary, which tells",
        hit_ratio=share,
    )


def preemption_inflation(evidence: Evidence) -> Verdict | None:
    """More lookups than prompt tokens: some requests were looked up again and found themselves."""
    organic = evidence.organic
    if not (organic and organic.quality is Quality.INFLATED and organic.queries and organic.prompt):
        return None
    excess = organic.queries - organic.prompt
    if excess <= MORE_LOOKUPS * organic.prompt and not organic.preemptions:
        return None
    hits = organic.hits or 0
    lower = max(0.0, hits - excess) / organic.prompt
    worth = (
        f"up to {min(hits, excess):.0f} of the hits can be of requests looked up again; the rate is at least "
        f"{lower:.1%}"
        if hits
        else "requests wait for blocks and are looked up again, and none was found"
    )
    return warning(
        Code.PREEMPTION_INFLATION,
        f"{organic.queries:.0f} tokens were looked up for {organic.prompt:.0f} of prompts: {worth}.",
        "give the cache more blocks, so that requests are not preempted; vLLM 0.27 and later count each request once",
        lower_bound_hit_rate=lower,
        excess_tokens=excess,
    )


def divergence(evidence: Evidence) -> Verdict | None:
    """Two prompts that should share their beginning part early, for no reason of theirs."""
    found = evidence.divergence
    if found is None or not found.volatile:
        return None
    code = Code.DOUBLE_BOS if found.double_bos else Code.VOLATILE_PROMPT_HEAD
    return warning(code, found.sentence, found.remedy, **found.numbers)


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
