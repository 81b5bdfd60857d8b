"""The body of a `/metrics` answer -> a `Snapshot`, or the reason why it is none."""

from exporter.parse import ParseError
from exporter.scrape import Reason, ScrapeError
from exporter.snapshot import NoEngineSeriesError, Snapshot, snapshot


def read(body: bytes, content_type: str = "", version: str = "") -> Snapshot:
    """Read an engine's answer; `version` is what its `/version` says.

    Raises ScrapeError: empty_body, html, parse_error or no_engine_series.
    """
    if not body.strip():
        raise ScrapeError(Reason.EMPTY_BODY, "an empty answer; check PROMETHEUS_MULTIPROC_DIR of the engine")
    if "html" in content_type.lower() or body.lstrip().startswith(b"<"):
        raise ScrapeError(Reason.HTML, "an HTML page, such as a login page or a proxy's error, and no metrics")
    try:
        return snapshot(body.decode("utf-8"), version)
    except UnicodeDecodeError as error:
        raise ScrapeError(Reason.PARSE_ERROR, f"not UTF-8 at byte {error.start}") from None
    except ParseError as error:
        raise ScrapeError(Reason.PARSE_ERROR, str(error)) from None
    except NoEngineSeriesError as error:
        raise ScrapeError(
            Reason.NO_ENGINE_SERIES,
            f"{error}: scrape the engine itself, not a gateway before it; vLLM hides them with --disable-log-stats",
        ) from None
