"""Asks every target at once, times it, and turns whatever happens into a `Scrape`."""

import json
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from prometheus_client.metrics_core import Metric

from exporter.config import Settings, Target
from exporter.fetch import TOO_LATE, Client
from exporter.metrics import families
from exporter.read import read
from exporter.scrape import Reason, Scrape, ScrapeError
from exporter.snapshot import Snapshot

log = logging.getLogger(__name__)

GRACE: Final = 0.2  # seconds past the deadline until a read that ignores it is cut
THREADS_PER_TARGET: Final = 2  # a spare one for a scrape that hangs in name resolution
HEALTH_SHARE: Final = 0.3  # of the time limit: a hanging /health must not cost the metrics
ONE_ENGINE_TIMEOUT: Final = 5.0  # seconds, of a collector that has no settings of its own
MAX_BODY: Final = 16 * 2**20  # bytes, of the same
UNHEALTHY: Final = {Reason.REFUSED, Reason.TIMEOUT, Reason.NETWORK, Reason.TRUNCATED, Reason.HTTP_5XX}


class Collector:
    """One scrape of all targets per call. Thread-safe; `close` ends what is under way."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sources = [_Source(target, settings.max_body_bytes) for target in settings.targets]
        self._pool = ThreadPoolExecutor(THREADS_PER_TARGET * len(self._sources), "scrape")
        self._last: dict[str, Reason | None] = {}  # to log a change once, and nothing else

    @classmethod
    def of_one(cls, target: Target) -> "Collector":
        """Return a collector of that engine alone, with the usual limits."""
        return cls(Settings((target,), "", 0, ONE_ENGINE_TIMEOUT, MAX_BODY))

    def collect(self, timeout: float | None = None) -> list[Metric]:
        """Return the families of a scrape made now, within `timeout` seconds."""
        return families(self.scrape(timeout))

    def scrape(self, timeout: float | None = None) -> list[Scrape]:
        """Ask all targets at once; each answers, or fails with a reason, within `timeout` seconds."""
        started = time.monotonic()
        limit = min(timeout, self._settings.timeout) if timeout else self._settings.timeout
        futures = [self._pool.submit(source.scrape, limit) for source in self._sources]
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
        self._vitals = Client(ca_file=target.ca_file, max_bytes=max_bytes)
        self._version: tuple[str, float | None] = ("", None)  # stated, and when the process that stated it started

    def scrape(self, limit: float) -> Scrape:
        started = time.monotonic()
        deadline = started + limit
        healthy, found, error = None, None, None
        try:
            healthy = self._healthy(started + limit * HEALTH_SHARE)
            body, content_type = self._metrics.get(self.target.metrics_url, deadline)
            found = self._read(body, content_type, deadline)
        except ScrapeError as caught:
            error = caught
        except Exception as caught:  # a scrape never takes the others down
            log.exception("target %s", self.target.name)
            error = ScrapeError(Reason.INTERNAL, f"{type(caught).__name__} in the exporter; its log has the rest")
        return Scrape(self.target.name, time.monotonic() - started, found, error, healthy)

    def cut(self) -> None:
        self._metrics.cut()
        self._vitals.cut()

    def _read(self, body: bytes, content_type: str, deadline: float) -> Snapshot:
        """Read an answer with the version of the process that gave it; one that tells its start is asked once."""
        assumed, since = self._version
        found = read(body, content_type, assumed)
        if assumed and since and found.start_time == since:
            return found
        stated = self._stated_version(deadline)
        self._version = (stated, found.start_time)
        return found if stated == assumed else read(body, content_type, stated)

    def _stated_version(self, deadline: float) -> str:
        try:
            version = json.loads(self._vitals.get(f"{self.target.url}/version", deadline)[0])["version"]
        except (ScrapeError, ValueError, KeyError, TypeError):
            return ""
        return version if isinstance(version, str) else ""

    def _healthy(self, deadline: float) -> bool | None:
        """Return whether /health answered 200; None where it cannot be known, as without such a page."""
        try:
            self._vitals.get(f"{self.target.url}/health", deadline)
        except ScrapeError as error:
            return False if error.reason in UNHEALTHY else None
        return True


def _outcome(source: _Source, future: Future[Scrape], started: float, deadline: float) -> Scrape:
    try:
        return future.result(max(deadline - time.monotonic(), 0))
    except TimeoutError:
        future.cancel()
        source.cut()
        error = ScrapeError(Reason.TIMEOUT, TOO_LATE)
        return Scrape(source.target.name, time.monotonic() - started, error=error)
