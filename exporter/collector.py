"""Asks every target at once, times it, and turns whatever happens into a `Scrape`. Keeps nothing between scrapes."""

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from prometheus_client.metrics_core import Metric

from exporter.config import Settings, Target
from exporter.fetch import TOO_LATE, Client
from exporter.metrics import FAMILIES, families
from exporter.parse import ParseError
from exporter.scrape import Reason, Scrape, ScrapeError
from exporter.snapshot import NoEngineSeriesError, Snapshot, snapshot

log = logging.getLogger(__name__)

GRACE: Final = 0.2  # seconds past the deadline until a read that ignores it is cut
THREADS_PER_TARGET: Final = 4  # two for a scrape, two spare for one that hangs in name resolution
UNHEALTHY: Final = {Reason.REFUSED, Reason.TIMEOUT, Reason.NETWORK, Reason.TRUNCATED, Reason.HTTP_5XX}


def read(text: str, version: str = "") -> Snapshot:
    """Read an exposition; raises ScrapeError with the reason where it cannot be used."""
    try:
        return snapshot(text, version)
    except ParseError as error:
        raise ScrapeError(Reason.PARSE_ERROR, str(error)) from None
    except NoEngineSeriesError as error:
        raise ScrapeError(
            Reason.NO_ENGINE_SERIES,
            f"{error}: scrape the engine itself, not a gateway before it; vLLM hides them with --disable-log-stats",
        ) from None


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
        futures = [self._pool.submit(source.scrape, started + limit, self._vitals) for source in self._sources]
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

    def scrape(self, deadline: float, pool: ThreadPoolExecutor) -> Scrape:
        started = time.monotonic()
        vitals = pool.submit(self._vital_signs, deadline)
        found, error = None, None
        try:
            text = self._metrics.get(self.target.metrics_url, deadline)
            found = read(text, vitals.result(max(deadline - time.monotonic(), 0))[1])
        except TimeoutError:
            error = ScrapeError(Reason.TIMEOUT, "no complete answer within the time limit (APC_EXPORTER_TIMEOUT)")
        except ScrapeError as caught:
            error = caught
        except Exception as caught:  # a scrape never takes the others down
            log.exception("target %s", self.target.name)
            error = ScrapeError(Reason.INTERNAL, f"{type(caught).__name__} in the exporter; its log has the rest")
        healthy = vitals.result()[0] if vitals.done() else None
        return Scrape(self.target.name, time.monotonic() - started, found, error, healthy)

    def cut(self) -> None:
        self._metrics.cut()
        self._vital.cut()

    def _vital_signs(self, deadline: float) -> tuple[bool | None, str]:
        """Return whether the engine is healthy, and its version; None and "" where that is not to be known."""
        try:
            self._vital.get(f"{self.target.url}/health", deadline)
        except ScrapeError as error:
            if error.reason in UNHEALTHY:
                return False, ""
            if error.reason is not Reason.EMPTY_BODY:  # vLLM's answer has no body
                return None, ""
        try:
            version = json.loads(self._vital.get(f"{self.target.url}/version", deadline))["version"]
        except (ScrapeError, ValueError, KeyError, TypeError):
            return True, ""
        return True, version if isinstance(version, str) else ""


def _outcome(source: _Source, future: Future[Scrape], started: float, deadline: float) -> Scrape:
    try:
        return future.result(max(deadline - time.monotonic(), 0))
    except TimeoutError:
        future.cancel()
        source.cut()
        error = ScrapeError(Reason.TIMEOUT, TOO_LATE)
        return Scrape(source.target.name, time.monotonic() - started, error=error)
