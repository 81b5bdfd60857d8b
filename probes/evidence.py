"""What a verdict rests on: engine snapshots with their canary, replies to canaries, a log; and what follows of them.

Everything is observed where it can be; what the engine states of itself (labels) is a hint. Tokens and seconds.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from exporter.scrape import ScrapeError
from exporter.snapshot import Snapshot
from exporter.window import NO_CANARY, Tokens, Window, lifetime_hit_ratio, window
from probes.canary import Cycle
from probes.divergence import Divergence
from probes.logs import LogFacts
from probes.outcome import Failure
from probes.plan import Arm

ENOUGH: Final = 2  # replies of an arm, before it is judged


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
    scrape_error: ScrapeError | None = None
    healthy: bool | None = None
    replies: tuple[Reply, ...] = ()
    failure: Failure | None = None  # of the last cycle
    log: LogFacts | None = None
    divergence: Divergence | None = None
    in_container: bool = False

    @cached_property
    def raw(self) -> Window | None:
        """What all traffic did between the snapshots, the canary's with it."""
        return window(self.before, self.after) if self.before and self.after else None

    @cached_property
    def organic(self) -> Window | None:
        """The same without the canary."""
        return window(self.before, self.after, self.canary) if self.before and self.after else None

    @property
    def engines(self) -> int:
        """Number of caches behind the server."""
        return len(self.after.caches) if self.after else 0

    @property
    def stated_enabled(self) -> bool | None:
        """What the engine, or else its log, says of prefix caching; None where they do not, or not with one voice."""
        said = {cache.facts.prefix_caching_enabled for cache in self.after.caches} if self.after else set()
        stated = said.pop() if len(said) == 1 else None
        return self.log.prefix_caching_enabled if stated is None and self.log else stated

    @property
    def stated_unit(self) -> int | None:
        """The block size that the engine states, in tokens."""
        stated = (
            [cache.facts.reuse_unit or cache.facts.stated_block_size for cache in self.after.caches]
            if self.after
            else []
        )
        known = [unit for unit in stated if unit]
        return max(known) if known else self.log.block_size if self.log else None

    @property
    def speculative(self) -> bool:
        """Whether the engine drafts tokens."""
        return bool(self.after) and any(cache.drafts is not None for cache in self.after.caches)  # type: ignore[union-attr]

    @property
    def lifetime_ratio(self) -> float | None:
        """Hits over queries since the engine's start."""
        return lifetime_hit_ratio(self.after) if self.after else None

    @cached_property
    def mean_prompt(self) -> float | None:
        """Tokens of the traffic's mean prompt: in the window if requests were counted there, else since the start."""
        if not self.after:
            return None
        counts = [cache.ttft.count for cache in self.after.caches if cache.ttft]
        earlier = [cache.ttft.count for cache in self.before.caches if cache.ttft] if self.before else []
        requests = sum(counts) - sum(earlier) - self.canary_requests
        if self.organic and self.organic.prompt and counts and requests > 0:
            return self.organic.prompt / requests
        lengths = [cache.prompt_length for cache in self.after.caches if cache.prompt_length]
        observed = sum(length.count for length in lengths) - self.canary_requests
        tokens = sum(length.sum for length in lengths) - self.canary.prompt
        return tokens / observed if observed > 0 else None

    def of(self, *arms: str) -> list[Reply]:
        """Return the replies of these arms that can be judged."""
        return [reply for reply in self.replies if reply.arm in arms and reply.judged]

    @property
    def told(self) -> list[Reply]:
        """Replies that say how much was cached of a prompt that had been seen."""
        return [r for r in self.of(Arm.REPEAT, Arm.RETAINED) if r.cached_tokens is not None and r.prompt_tokens]

    @property
    def survival_unknown(self) -> bool:
        """Whether the canary's prefix is too new to tell if one stays in the cache until the next cycle."""
        return any(reply.arm == Arm.RETAINED for reply in self.replies) and not self.of(Arm.RETAINED)

    @property
    def reuse(self) -> bool | None:
        """Whether a prompt sent again at once was found; None where that cannot be told."""
        told = [r for r in self.of(Arm.REPEAT) if r.cached_tokens is not None]
        if told:
            if any(r.cached_tokens for r in told):
                return True
            return False if len(told) >= ENOUGH else None
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

    @cached_property
    def observed_unit(self) -> int | None:
        """The tokens that hits are a multiple of, where hits of different sizes were seen."""
        sizes = {r.cached_tokens for r in self.told if r.cached_tokens}
        return math.gcd(*sizes) if len(sizes) >= ENOUGH else None


CLEAR_GAIN: Final = 0.5  # of a miss's TTFT: more than noise, and more than a busy host gives by chance


def of_cycles(cycles: Sequence[Cycle], log: LogFacts | None = None) -> Evidence:
    """Return what the last cycles of one target give, the oldest first."""
    last = cycles[-1]
    scrape = last.after or last.before
    before = next((c.before.snapshot for c in cycles if c.before and c.before.snapshot), None)
    results = [sent.result for cycle in cycles for sent in cycle.sent]
    return Evidence(
        before=before,
        after=scrape.snapshot if scrape else None,
        canary=Tokens(sum(r.prompt_tokens or 0 for r in results), sum(r.cached_tokens or 0 for r in results)),
        canary_requests=sum(r.prompt_tokens is not None for r in results),
        scrape_error=scrape.error if scrape else None,
        healthy=scrape.healthy if scrape else None,
        replies=tuple(_replies(cycles)),
        failure=last.failure,
        log=log,
    )


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
                ttft=None if result.marks else result.ttft,
                judged=planned.arm is not Arm.RETAINED or not cycle.prefix_is_new,
                at=datetime.fromtimestamp(result.started_at).astimezone(),
            )
