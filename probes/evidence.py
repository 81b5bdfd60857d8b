"""What a verdict rests on: engine snapshots with their canary, replies to canaries, a log; and what follows of them.

Everything is observed where it can be; what the engine states of itself (labels) is a hint. Tokens and seconds.
"""

import statistics
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import Final

from exporter.engine import Unit
from exporter.scrape import ScrapeError
from exporter.snapshot import Cache, Snapshot
from exporter.window import NO_CANARY, State, Tokens, Window, lifetime_hit_ratio, window
from probes.canary import Cycle
from probes.client import Mark, Result
from probes.divergence import Divergence, TokenDivergence
from probes.logs import LogFacts
from probes.outcome import Failure
from probes.plan import Arm
from probes.units import LARGE_BLOCK, LARGEST_BLOCK, drafted, explain, plain

ENOUGH: Final = 2  # replies of an arm, before it is judged
HIT: Final = 0.5  # of the best share of a prompt that was seen cached: less is a miss
LEAST_HIT: Final = 0.25  # of a prompt: less is the head that the chat template gives to all
CLEAR_GAIN: Final = 0.5  # of a miss's TTFT: more than noise, and more than a busy host gives by chance
MANY_UNITS: Final = 10  # a prompt that long should be reused whatever is lost at its end
SEVERAL_UNITS: Final = 4  # the same where units are large, and loss is of one unit or two
MORE_LOOKUPS: Final = 0.02  # than prompt tokens: less are of requests still under way
OWN_IMAGE: Final = Path("/opt/image")  # in a container of it the probe is alone, and its localhost no engine's
MARKS_OF_CONTAINERS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))


@dataclass(frozen=True, slots=True)
class Reply:
    """What one canary request was told. `same` says that its very prompt had been sent before."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    arm: str = Arm.REPEAT
    ttft: float | None = None
    same: bool = False
    judged: bool = True  # False: it could not have been cached, as the first sighting of a prefix or an adapter
    model: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class Evidence:
    """All that is known; what is not known is None or empty."""

    before: Snapshot | None = None
    after: Snapshot | None = None
    canary: Tokens = NO_CANARY  # what the canary sent between the two
    canary_requests: int = 0
    canary_told: bool = True  # whether all of it says how much was cached
    scrape_error: ScrapeError | None = None
    healthy: bool | None = None
    replies: tuple[Reply, ...] = ()
    failure: Failure | None = None  # of the last cycle
    log: LogFacts | None = None
    divergence: Divergence | TokenDivergence | None = None
    in_container: bool = False

    @cached_property
    def raw(self) -> Window | None:
        """What all traffic did between the snapshots, the canary's with it."""
        return window(self.before, self.after) if self.before and self.after else None

    @cached_property
    def organic(self) -> Window | None:
        """The same without the canary; where that does not tell of its hits, at least so much was the traffic's."""
        if not (self.before and self.after):
            return None
        canary = self.canary
        if not self.canary_told and self.raw:
            canary = Tokens(canary.prompt, min(self.raw.hits or 0.0, canary.prompt))
        return window(self.before, self.after, canary)

    @property
    def found_share(self) -> float | None:
        """Share of the traffic's tokens that were found, in any tier, 0..1; None where the window does not tell."""
        raw, organic = self.raw, self.organic
        if not (
            raw and organic and organic.state in {State.HITTING, State.ZERO} and (self.canary_told or not raw.hits)
        ):
            return None
        if organic.unit is Unit.BLOCKS and self.canary_requests:
            return None  # what the canary sent is known in tokens only
        asked = organic.prompt or organic.queries
        if not (self.external_hits and asked):
            return organic.hit_ratio
        return min(1.0, max(0.0, (raw.hits or 0.0) + self.external_hits - self.canary.cached) / asked)

    @property
    def lifetime_ratio(self) -> float | None:
        """Hits over queries since the engine's start; None where lookups outnumber what there was to look up."""
        if not self.after:
            return None
        caches = self.after.caches
        queried, prompt = sum(cache.queried or 0 for cache in caches), sum(cache.prompt or 0 for cache in caches)
        repeated = caches[0].unit is Unit.TOKENS and 0 < prompt * (1 + MORE_LOOKUPS) < queried
        return None if repeated else lifetime_hit_ratio(self.after)

    @property
    def ever_found(self) -> bool:
        """Whether anything was found since the engine's start."""
        return any(cache.hit for cache in self.after.caches) if self.after else False

    @property
    def external_hits(self) -> float:
        """Tokens that a KV connector supplied in the window."""
        return max(0.0, self._rise(lambda cache: cache.external_hit or 0.0) or 0.0)

    @property
    def looked_up(self) -> bool:
        """Whether the counters show any lookup: in the window, or else since the start."""
        counted = any(cache.queried for cache in self.after.caches) if self.after else False
        if self.raw is None or self.raw.state is State.RESTARTED:
            return counted
        return bool(self.raw.queries)

    @property
    def engines(self) -> int:
        """Number of caches behind the server."""
        return len(self.after.caches) if self.after else 0

    @property
    def stated_enabled(self) -> bool | None:
        """What is said of prefix caching; None where nothing is, or not with one voice.

        A log that says "off" outdoes the engine's label, which is only the front end's copy of the setting.
        """
        logged = self.log.prefix_caching_enabled if self.log else None
        said = {cache.facts.prefix_caching_enabled for cache in self.after.caches} if self.after else set()
        stated = said.pop() if len(said) == 1 else None
        return logged if logged is False or stated is None else stated

    @property
    def hybrid(self) -> bool:
        """Whether the model keeps more than KV, so that its unit of reuse can be larger than what is stated."""
        facts = [cache.facts for cache in self.after.caches] if self.after else []
        return any(fact.stated_block_size and not (fact.block_size or fact.reuse_unit) for fact in facts)

    @property
    def stated_unit(self) -> int | None:
        """The largest block size that the engine and its log state, in tokens."""
        caches = self.after.caches if self.after else ()
        stated = [cache.facts.reuse_unit or cache.facts.stated_block_size for cache in caches]
        return max(filter(None, (*stated, self.log.block_size if self.log else None)), default=None)

    @property
    def sure_unit(self) -> int | None:
        """The stated unit where it is likely the true one: a hybrid model's small one is not."""
        unit = self.stated_unit
        return None if unit and self.hybrid and unit < LARGE_BLOCK else unit

    @cached_property
    def observed_unit(self) -> int | None:
        """The unit that explains what was found of prompts sent again."""
        pairs = {(r.prompt_tokens or 0, r.cached_tokens or 0) for r in self.told if r.same}
        models = (drafted, plain) if self.speculative else (plain,)
        return next((unit for model in models if (unit := explain(pairs, self.stated_unit, model))), None)

    @property
    def speculative(self) -> bool:
        """Whether the engine drafts tokens."""
        return bool(self.after) and any(cache.drafts is not None for cache in self.after.caches)  # type: ignore[union-attr]

    def surely_long(self, tokens: float) -> bool:
        """Whether a prompt of so many tokens, sent again, is found in part whatever its end loses."""
        unit = self.sure_unit
        if unit is None:
            return tokens > LARGEST_BLOCK * (1 + self.speculative)
        return tokens >= unit * (SEVERAL_UNITS if unit >= LARGE_BLOCK else MANY_UNITS)

    @cached_property
    def mean_prompt(self) -> float | None:
        """Tokens of the traffic's mean prompt: in the window if requests were counted there, else since the start."""
        requests = self._rise(lambda cache: cache.ttft.count if cache.ttft else None)
        if self.organic and self.organic.prompt and requests and requests > self.canary_requests:
            return self.organic.prompt / (requests - self.canary_requests)
        count = self._rise(lambda cache: cache.prompt_length.count if cache.prompt_length else None)
        tokens = self._rise(lambda cache: cache.prompt_length.sum if cache.prompt_length else None)
        if count is None or tokens is None or count <= self.canary_requests:
            lengths = [cache.prompt_length for cache in self.after.caches if cache.prompt_length] if self.after else []
            count, tokens = sum(length.count for length in lengths), sum(length.sum for length in lengths)
        count, tokens = count - self.canary_requests, tokens - self.canary.prompt
        return tokens / count if count > 0 else None

    def _rise(self, read: Callable[[Cache], float | None]) -> float | None:
        """Return by how much a figure rose, summed over the caches; None where a side does not have it."""
        if not (self.before and self.after):
            return None
        earlier = {(cache.model_name, cache.engine): read(cache) for cache in self.before.caches}
        pairs = [(earlier.get((cache.model_name, cache.engine)), read(cache)) for cache in self.after.caches]
        known = [last - first for first, last in pairs if first is not None and last is not None]
        return sum(known) if known else None

    def of(self, *arms: str) -> list[Reply]:
        """Return the replies of these arms that can be judged."""
        return [reply for reply in self.replies if reply.arm in arms and reply.judged]

    @property
    def told(self) -> list[Reply]:
        """Replies that say how much was cached of a prompt that had been seen."""
        return [r for r in self.of(Arm.REPEAT, Arm.RETAINED) if r.cached_tokens is not None and r.prompt_tokens]

    @property
    def repeats(self) -> list[Reply]:
        """Replies to a prompt sent again at once, of which something could have been found, that say how much was."""
        return [r for r in self.of(Arm.REPEAT) if r.cached_tokens is not None and self._findable(r)]

    def hit(self, reply: Reply) -> bool:
        """Whether a prompt was found, and not just its first words."""
        return self._share(reply) >= max(HIT * self._best_share, LEAST_HIT)

    @cached_property
    def _best_share(self) -> float:
        return max(map(self._share, self.replies), default=0.0)

    @cached_property
    def _most_cached(self) -> int:
        return max((reply.cached_tokens or 0 for reply in self.replies), default=0)

    def _share(self, reply: Reply) -> float:
        """Return the cached share of a prompt; where its length is not known, of the most that was seen cached."""
        whole = reply.prompt_tokens or self._most_cached
        return (reply.cached_tokens or 0) / whole if whole else 0.0

    def _findable(self, reply: Reply) -> bool:
        """Whether a reply tells anything: the prompt may be too short for anything of it to be found."""
        unit, model = self.sure_unit, drafted if self.speculative else plain
        return bool(reply.cached_tokens) or not (reply.prompt_tokens and unit) or model(reply.prompt_tokens, unit) > 0

    @property
    def survival_unknown(self) -> bool:
        """Whether the canary's prefix is too new to tell if one stays in the cache until the next cycle."""
        return any(reply.arm == Arm.RETAINED for reply in self.replies) and not self.of(Arm.RETAINED)

    @property
    def reuse(self) -> bool | None:
        """Whether a prompt sent again at once was found; None where that cannot be told."""
        repeats = self.repeats
        if repeats:
            if any(map(self.hit, repeats)):
                return True
            sent = sum(reply.arm in {Arm.REPEAT, Arm.RETAINED} for reply in self.replies)
            return False if len(repeats) >= ENOUGH and sent > self.engines else None  # each cache may miss once
        return True if (gain := self.gain) is not None and gain >= CLEAR_GAIN else None

    @property
    def gain(self) -> float | None:
        """Share of the TTFT of a miss that a hit saves, from medians; None with too few of either."""
        cold, warm = (self.median_ttft(arm) for arm in (Arm.CONTROL, Arm.REPEAT))
        return 1 - warm / cold if cold and warm and len(self.of(Arm.REPEAT)) >= ENOUGH else None

    def median_ttft(self, arm: str) -> float | None:
        """Return the median TTFT of an arm in seconds."""
        seconds = [r.ttft for r in self.replies if r.arm == arm and r.ttft is not None]
        return statistics.median(seconds) if seconds else None


def of_cycles(cycles: Collection[Cycle], log: LogFacts | None = None, *, in_container: bool | None = None) -> Evidence:
    """Return what the last cycles of one target give, the oldest first.

    `in_container` is whether localhost can be taken for the wrong place; by default, in the stack's own image alone,
    since in any other container the engine may run as well, and be loading its model.
    """
    *_, last = cycles
    scrape = last.after or last.before
    within = list(dropwhile(lambda cycle: not (cycle.before and cycle.before.snapshot), cycles))
    before = within[0].before if within else None
    sent = [(cycle, each.result) for cycle in within for each in cycle.sent]
    return Evidence(
        before=before.snapshot if before else None,
        after=scrape.snapshot if scrape else None,
        canary=Tokens(sum(r.prompt_tokens or 0 for _, r in sent), sum(c.cached(r) or 0 for c, r in sent)),
        canary_requests=sum(r.prompt_tokens is not None for _, r in sent),
        canary_told=all(result.failure or cycle.cached(result) is not None for cycle, result in sent),
        scrape_error=scrape.error if scrape else None,
        healthy=scrape.healthy if scrape else None,
        replies=tuple(_replies(cycles)),
        failure=last.failure,
        log=log,
        # Where localhost has answered before, it is the right place.
        in_container=(OWN_IMAGE.exists() if in_container is None else in_container)
        and not any(cycle.sent for cycle in cycles),
    )


def within_container() -> bool:
    """Whether this process runs in a container, whose localhost is its own."""
    return any(path.exists() for path in MARKS_OF_CONTAINERS)


def first_token(result: Result) -> float | None:
    """Return the seconds to the first token; None for an answer held back on its way, which shows its end alone."""
    return None if Mark.BUFFERED in result.marks else result.ttft


def _replies(cycles: Iterable[Cycle]) -> Iterable[Reply]:
    for cycle in cycles:
        for sent in cycle.sent:
            result, planned = sent.result, sent.planned
            if result.failure or not planned.measures:
                continue
            yield Reply(
                prompt_tokens=result.prompt_tokens,
                cached_tokens=cycle.cached(result),
                arm=planned.arm,
                ttft=first_token(result),
                judged=planned.arm is not Arm.RETAINED or not cycle.prefix_is_new,
                at=datetime.fromtimestamp(result.started_at).astimezone(),
            )
