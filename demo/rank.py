"""One engine core of the simulated engine: who waits, who runs, what each step takes and what is counted."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from demo.cache import Allocation, PrefixCache
from demo.exposition import Configuration, Stats

MAX_MODEL_LEN: Final = 8192  # tokens


@dataclass(frozen=True, kw_only=True)
class Settings(Configuration):
    """The options of the command line."""

    api_key: str | None = None
    prompt_tokens_details: bool = True
    prefill_us_per_token: float = 60.0
    base_ms: float = 8.0  # of each prefill
    decode_ms: float = 4.0  # of each token after the first

    @property
    def capacity(self) -> int:
        """The most tokens that one request can have; vLLM keeps one block for itself."""
        return min(MAX_MODEL_LEN, (self.blocks - 1) * self.block_size)


@dataclass(eq=False)
class Request:
    """One sequence to generate."""

    prompt: list[int]
    extra: tuple[str, ...]
    read: bool  # look the prompt up in the cache
    answer: Iterator[int]
    slow_by: float = 0.0  # seconds
    cached_tokens: int = 0  # known once there is a token


class Rank:
    """One engine core: a queue, first come first served, one prefill at a time, a cache of its own."""

    def __init__(self, settings: Settings, pause: Callable[[float], object]) -> None:
        self.changed = threading.Condition()
        self.settings = settings
        self.stats = Stats(settings)
        self.queue: deque[Request] = deque()
        self.running: set[Allocation] = set()
        self._prefilling = False
        self._pause = pause
        self.configure(settings)

    @property
    def load(self) -> int:
        """Requests that run or wait."""
        return len(self.running) + len(self.queue)

    def configure(self, settings: Settings) -> None:
        """Go on with an empty cache; requests that run keep their blocks of the old one."""
        with self.changed:
            self.settings = self.stats.configuration = settings
            blocks, size, given_up = settings.blocks - 1, settings.block_size, int(settings.speculative)
            self.cache = PrefixCache(blocks, size, caching=settings.prefix_caching, given_up=given_up)
            self.changed.notify_all()

    def refresh(self) -> None:
        """Bring the gauges and the residencies up to date; call it holding `changed`."""
        self.stats.running, self.stats.waiting = len(self.running), len(self.queue)
        self.stats.kv_usage = self.cache.held / max(1, self.cache.blocks)
        for residency in self.cache.residencies:
            self.stats.reallocated(residency)
        self.cache.residencies.clear()

    def generate(self, request: Request) -> Generator[int]:
        """Yield the tokens as they come; closing the iterator aborts the request."""
        arrived = time.monotonic()
        allocation, scheduled = self._prefill(request.prompt, request)
        try:
            self._pause(request.slow_by)
            first = time.monotonic()
            with self.changed:
                self.stats.first_token(len(request.prompt), request.cached_tokens, first - arrived)
            previous = None
            for token in request.answer:
                if previous is not None:
                    allocation = self._decode(allocation, previous, request)
                with self.changed:
                    self.stats.counts.update(generated=1, drafts=int(self.settings.speculative))
                yield token
                previous = token
            times = {"queue": scheduled - arrived, "prefill": first - scheduled, "e2e": time.monotonic() - arrived}
            with self.changed:
                for name, seconds in times.items():
                    self.stats.histograms[name].observe(seconds)
                self.stats.histograms["prompt_length"].observe(len(request.prompt))
        finally:
            self._leave(allocation)

    def _prefill(self, tokens: Sequence[int], request: Request, *, resumed: bool = False) -> tuple[Allocation, float]:
        """Wait for a turn and for blocks, then compute what is not cached; return the blocks and the turn's start."""
        with self.changed:
            (self.queue.appendleft if resumed else self.queue.append)(request)
            try:
                while (
                    self._prefilling
                    or self.queue[0] is not request
                    or not (allocation := self.cache.admit(tokens, request.extra, read=request.read))
                ):
                    self.changed.wait()
            finally:
                self.queue.remove(request)
                self.changed.notify_all()
            self._prefilling = True
            self.running.add(allocation)
            if not resumed:
                request.cached_tokens = allocation.cached_tokens
                if request.read and self.settings.prefix_caching:
                    self.stats.looked_up(len(tokens), allocation.cached_tokens)
            self.refresh()
        scheduled = time.monotonic()
        uncached = len(tokens) - allocation.cached_tokens
        self._pause(self.settings.base_ms / 1e3 + uncached * self.settings.prefill_us_per_token / 1e6)
        with self.changed:
            self._prefilling = False
            self.changed.notify_all()
        return allocation, scheduled

    def _decode(self, allocation: Allocation, token: int, request: Request) -> Allocation:
        with self.changed:
            fits = allocation.cache.append(allocation, token)
        if not fits:
            with self.changed:
                self.stats.counts["preemptions"] += 1
            self._leave(allocation)
            allocation, _ = self._prefill([*allocation.tokens, token], request, resumed=True)
        self._pause(self.settings.decode_ms / 1e3)
        return allocation

    def _leave(self, allocation: Allocation) -> None:
        with self.changed:
            allocation.cache.release(allocation)
            self.running.discard(allocation)
            self.changed.notify_all()
