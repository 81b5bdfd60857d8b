"""The outcome of asking one engine once: data that the parts of the exporter hand on."""

from dataclasses import dataclass
from enum import StrEnum

from exporter.snapshot import Snapshot


class Reason(StrEnum):
    """Why a scrape of an engine failed. The values are those of the label `reason`."""

    REFUSED = "refused"
    DNS = "dns"
    TIMEOUT = "timeout"
    TLS = "tls"
    NETWORK = "network"  # reset, unreachable, or no HTTP spoken there
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    AUTH = "auth"
    REDIRECT = "redirect"  # to another server, which gets neither the request nor the key, or to nowhere
    HTML = "html"
    EMPTY_BODY = "empty_body"
    NO_ENGINE_SERIES = "no_engine_series"
    PARSE_ERROR = "parse_error"
    TOO_LARGE = "too_large"
    TRUNCATED = "truncated"
    INTERNAL = "internal"  # a fault of the exporter's own


class ScrapeError(Exception):
    """A named reason, and a sentence with the remedy. It never holds a key."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Scrape:
    """One target's scrape: a snapshot, or the reason why there is none."""

    target: str
    duration: float  # seconds
    snapshot: Snapshot | None = None
    error: ScrapeError | None = None
    healthy: bool | None = None  # None = the engine has no /health, or it could not be asked

    @property
    def reason(self) -> Reason | None:
        """Why it failed; None if it did not."""
        return self.error.reason if self.error else None
