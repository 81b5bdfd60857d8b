"""The body of a `/metrics` answer -> a `Snapshot`, or the reason why it is none."""

import json
from codecs import BOM_UTF8
from typing import Final

from exporter.parse import ParseError
from exporter.scrape import Reason, ScrapeError
from exporter.snapshot import NoEngineSeriesError, Snapshot, snapshot

REMEDY: Final = "scrape the engine itself, not a gateway before it"


def read(body: bytes, content_type: str = "", version: str = "") -> Snapshot:
    """Read an engine's answer; `version` is what its `/version` says.

    Raises ScrapeError: empty_body, html, parse_error or no_engine_series.
    """
    body = body.removeprefix(BOM_UTF8)  # as some editors write it
    if not body.strip():
        raise ScrapeError(Reason.EMPTY_BODY, "an empty answer; check PROMETHEUS_MULTIPROC_DIR of the engine")
    if "html" in content_type.lower() or body.lstrip().startswith(b"<"):
        raise ScrapeError(Reason.HTML, "an HTML page, such as a login page or a proxy's error, and no metrics")
    if _is_json(body):
        raise ScrapeError(Reason.NO_ENGINE_SERIES, f"a JSON document and no metrics: {REMEDY}")
    try:
        return snapshot(body.decode("utf-8"), version)
    except UnicodeDecodeError as error:
        raise ScrapeError(Reason.PARSE_ERROR, f"not UTF-8 at byte {error.start}") from None
    except ParseError as error:
        raise ScrapeError(Reason.PARSE_ERROR, str(error)) from None
    except NoEngineSeriesError as error:
        raise ScrapeError(
            Reason.NO_ENGINE_SERIES,
            f"{error}: {REMEDY}; vLLM hides them with --disable-log-stats",
        ) from None


def _is_json(body: bytes) -> bool:
    """Whether it is an object or a list; metrics may start with a brace too."""
    if body.lstrip()[:1] not in {b"{", b"["}:
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
