"""Asks every target at once, times it, and turns whatever happens into a `Scrape`. Keeps nothing between scrapes."""

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from prometheus_client.metrics_core import Metric

from exporter.config import Settings, Target
from exporter.fetch import TOO_LATE, Client
from exporter.metrics import FAMILIES, families
from exporter.read import read
from exporter.scrape import Reason, Scrape, ScrapeError

log = logging.getLogger(__name__)

GRACE: Final = 0.2  # seconds past the deadline until a read that ignores it is cut
THREADS_PER_TARGET: Final = 4  # two for a scrape, two spare for one that hangs in name resolution
VITALS_SHARE: Final = 0.8  # of the time limit, so that a hanging /health is known before the scrape must end
UNHEALTHY: Final = {Reason.REFUSED, Reason.TIMEOUT, Reason.NETWORK, Reason.TRUNCATED, Reason.HTTP_5XX}


class Collector:
    """One scrape of all targets per call. Thread-safe; `close` ends what is under way."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sources = [_Source(target, settings.max_body_bytes) for target in settings.targets]
        self._pool = ThreadPoolExecutor(THREADS_PER_TARGET * len(self._sources), "scrape")
        self._vitals = ThreadPoolExecutor(THREADS_PER_TARGET * len(self._sources), "vitals")
        self._last: dict[str, Reason | None] = {}  # to log a change once, and nothing else

    def describe(self) -> Iterator[Metric]:
        """Yield the declared families, empty."""
        return (family.empty() for family in FAMILIES)

    def collect(self, timeout: float | None = None) -> list[Metric]:
        """Return the families of a scrape made now, within `timeout` seconds."""
        return families(self.scrape(timeout))

    def scrape(self, timeout: float | None = None) -> list[Scrape]:
        """Ask all targets at once; each answers, or fails with a reason, within `timeout` seconds."""
        started = time.monotonic()
        limit = min(timeout, self._settings.timeout) if timeout else self._settings.timeout
        futures = [self._pool.submit(source.scrape, limit, self._vitals) for source in self._sources]
        scrapes = [
            _outcome(source, future, started, started + limit + GRACE)
            for source, future in zip(self._sources, futures, strict=True)
        ]
        for scrape in scrapes:
            self._log_change(scrape)
        return scrapes

    def close(self) -> None:
        """End all requests and the threads."""
        for source in self._sources:
            source.cut()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._vitals.shutdown(wait=False, cancel_futures=True)

    def _log_change(self, scrape: Scrape) -> None:
        if self._last.get(scrape.target) == scrape.reason and scrape.target in self._last:
            return
        self._last[scrape.target] = scrape.reason
        if scrape.error:
            log.warning("target %s: %s", scrape.target, scrape.error)
        else:
            log.info("target %s: scraped", scrape.target)


class _Source:
    """One target with its two clients: the key of /metrics is not the key of the API."""

    def __init__(self, target: Target, max_bytes: int) -> None:
        self.target = target
        self._metrics = Client(target.metrics_key, target.ca_file, max_bytes)
        self._vital = Client(ca_file=target.ca_file, max_bytes=max_bytes)

    def scrape(self, limit: float, pool: ThreadPoolExecutor) -> Scrape:
        started = time.monotonic()
        vitals = pool.submit(self._vital_signs, started + limit * VITALS_SHARE)
        found, error = None, None
        try:
            body, content_type = self._metrics.get(self.target.metrics_url, started + limit)
            found = read(body, content_type, _result(vitals, started + limit).version)
        except ScrapeError as caught:
            error = caught
        except Exception as caught:  # a scrape never takes the others down
            log.exception("target %s", self.target.name)
            error = ScrapeError(Reason.INTERNAL, f"{type(caught).__name__} in the exporter; its log has the rest")
        healthy = _result(vitals, started + limit).healthy
        return Scrape(self.target.name, time.monotonic() - started, found, error, healthy)

    def cut(self) -> None:
        self._metrics.cut()
        self._vital.cut()

    def _vital_signs(self, deadline: float) -> "_Vitals":
        try:
            self._vital.get(f"{self.target.url}/health", deadline)
        except ScrapeError as error:
            return _Vitals(healthy=False if error.reason in UNHEALTHY else None)
        try:
            version = json.loads(self._vital.get(f"{self.target.url}/version", deadline)[0])["version"]
        except (ScrapeError, ValueError, KeyError, TypeError):
            return _Vitals(healthy=True)
        return _Vitals(healthy=True, version=version if isinstance(version, str) else "")


class _Vitals(NamedTuple):
    """Whether the engine is healthy, and its version; None and "" where that is not to be known."""

    healthy: bool | None = None
    version: str = ""


def _result(vitals: Future[_Vitals], deadline: float) -> _Vitals:
    """Wait for the vital signs; that they hang does not cost the metrics."""
    try:
        return vitals.result(max(deadline - time.monotonic(), 0))
    except TimeoutError:
        return _Vitals()


def _outcome(source: _Source, future: Future[Scrape], started: float, deadline: float) -> Scrape:
    try:
        return future.result(max(deadline - time.monotonic(), 0))
    except TimeoutError:
        future.cancel()
        source.cut()
        error = ScrapeError(Reason.TIMEOUT, TOO_LATE)
        return Scrape(source.target.name, time.monotonic() - started, error=error)
