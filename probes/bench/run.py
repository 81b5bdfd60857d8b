"""Sends the requests of the stages, reads the counters around each stage, and keeps what was measured when stopped."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from exporter.scrape import Scrape
from probes.bench.servers import Sample, Server, apart, sample
from probes.bench.steps import Arm, Ask, Batch, Off, Stage

SETTLE: Final = 0.15  # seconds after an answer's end until the engine has counted it
LOOK: Final = 1.0  # seconds between two readings of the cache's usage under load


@dataclass(frozen=True, slots=True)
class Reading:
    """One server's counters around a stage, and what the bench sent to it meanwhile."""

    stage: str
    arms: str  # on, off, or both where one server has both
    before: Scrape | None
    after: Scrape | None
    samples: tuple[Sample, ...]
    peak_usage: float | None = None  # 0..1, of readings under load


@dataclass(slots=True)
class Measured:
    """All that a run has seen so far. `stopped` is why it ended early."""

    samples: list[Sample] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    planned: int = 0
    stopped: str = ""


class Runner:
    """Runs stages against one server or two. `off` is how the second arm goes without reuse."""

    def __init__(self, servers: Mapping[Arm, Server], off: Off, seed: str, limit: float | None = None) -> None:
        self._servers = servers
        self._off = off
        self._seed = seed
        self._deadline = time.monotonic() + limit if limit else None
        self._usage: dict[Arm, float] = {}
        self.measured = Measured()

    def run(self, stages: Iterable[Stage], tick: Callable[[str, int], object]) -> Measured:
        """Run them in turn; `tick` hears of the stage and of each batch's requests. Ends early on Ctrl-C, keeping all.

        A limit in seconds ends the run between two batches.
        """
        stages = list(stages)
        self.measured.planned += sum(len(batch.asks) for stage in stages for batch in stage.batches)
        for stage in stages:
            if self.measured.stopped:
                break
            self._stage(stage, tick)
        return self.measured

    def _stage(self, stage: Stage, tick: Callable[[str, int], object]) -> None:
        self._usage = {}
        before = self._scrapes()
        samples: list[Sample] = []
        try:
            for batch in stage.batches:
                if self._deadline and time.monotonic() > self._deadline:
                    self.measured.stopped = "the time was up"
                    break
                self._batch(batch, samples)
                tick(stage.name, len(batch.asks))
            time.sleep(SETTLE)
        except KeyboardInterrupt:
            self.measured.stopped = "stopped by hand"
        self.measured.samples += samples
        after = {} if self.measured.stopped == "stopped by hand" else self._scrapes()
        for arm in self._servers:
            own = tuple(one for one in samples if len(self._servers) == 1 or one.arm == arm)
            usage = self._usage.get(arm)
            name = arm if len(self._servers) > 1 else "both"
            self.measured.readings.append(Reading(stage.name, name, before.get(arm), after.get(arm), own, usage))

    def _scrapes(self) -> dict[Arm, Scrape | None]:
        return {arm: server.scrape() for arm, server in self._servers.items()}

    def _batch(self, batch: Batch, samples: list[Sample]) -> None:
        if batch.width == 1:
            samples.extend(self._send(ask, 0) for ask in batch.asks)
            return
        server = self._server(batch.asks[0].arm)
        server.widen(batch.width)
        waiting = deque(batch.asks)

        def work(client: int) -> None:
            with suppress(IndexError):  # none are left
                while not server.closed:
                    one = self._send(waiting.popleft(), client)
                    if not server.closed:
                        samples.append(one)

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(batch.width)]
        for thread in threads:
            thread.start()
        try:
            self._watch(threads, batch.asks[0].arm)
        except KeyboardInterrupt:
            server.close()
            raise

    def _watch(self, threads: list[threading.Thread], arm: Arm) -> None:
        """Wait for the clients, reading the cache's usage now and then."""
        arm = arm if arm in self._servers else Arm.ON
        looked = time.monotonic()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
                if time.monotonic() - looked > LOOK and thread.is_alive():
                    scrape, looked = self._servers[arm].scrape(), time.monotonic()
                    caches = scrape.snapshot.caches if scrape and scrape.snapshot else ()
                    usage = [cache.kv_usage for cache in caches if cache.kv_usage is not None]
                    self._usage[arm] = max([self._usage.get(arm, 0.0), *usage])

    def _send(self, ask: Ask, client: int) -> Sample:
        messages, salt = apart(ask, self._off, self._seed)
        return sample(ask, self._server(ask.arm).send(messages, client, salt))

    def _server(self, arm: Arm) -> Server:
        return self._servers.get(arm) or self._servers[Arm.ON]
