"""Metrics over HTTP: `/metrics` negotiated for Prometheus 2 and 3, `/-/healthy`, and a line at `/`."""

import errno
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client.exposition import ThreadingWSGIServer, choose_encoder
from prometheus_client.metrics_core import Metric

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

SCRAPE_TIMEOUT = "HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS"
MARGIN = 0.5  # seconds of Prometheus' limit left for the way back
PLAIN = "text/plain; charset=utf-8"

Collect = Callable[[float | None], Iterable[Metric]]


class _Once:
    """Families in the shape that the encoders ask for."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(families: Iterable[Metric], accept: str = "") -> tuple[bytes, str]:
    """Return the families as text, and its content type, in the best format that `accept` names."""
    encoder, content_type = choose_encoder(accept)
    return encoder(_Once(families)), content_type


def application(collect: Collect, name: str = "prefix-cache exporter") -> "WSGIApplication":
    """Build the WSGI application; `collect(timeout)` is called once for each GET of /metrics."""

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> list[bytes]:
        status, content_type, body = _answer(environ, collect, name)
        start_response(status, [("Content-Type", content_type), ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return app


def _answer(environ: "WSGIEnvironment", collect: Collect, name: str) -> tuple[str, str, bytes]:
    if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
        return "405 Method Not Allowed", PLAIN, b"only GET\n"
    path = environ.get("PATH_INFO", "/")
    if path == "/-/healthy":
        return "200 OK", PLAIN, b"ok\n"
    if path == "/":
        return "200 OK", PLAIN, f"{name}; the metrics are at /metrics\n".encode()
    if path not in {"/metrics", "/metrics/"}:
        return "404 Not Found", PLAIN, b"the metrics are at /metrics\n"
    try:
        body, content_type = exposition(collect(_timeout(environ)), environ.get("HTTP_ACCEPT", ""))
    except Exception:  # the last resort: Prometheus then sees a failed scrape, and the log why
        log.exception("the scrape failed")
        return "500 Internal Server Error", PLAIN, b"it failed; its log says why\n"
    return "200 OK", content_type, body


def _timeout(environ: "WSGIEnvironment") -> float | None:
    """Return the seconds that Prometheus leaves us, None where it does not say."""
    try:
        stated = float(environ.get(SCRAPE_TIMEOUT, ""))
    except ValueError:
        return None
    return max(stated - MARGIN, stated / 2) if math.isfinite(stated) and stated > 0 else None


class _Quiet(WSGIRequestHandler):
    """Logs errors only: a line per scrape says nothing."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        log.warning(format, *args)


def run_until_stopped(server: ThreadingWSGIServer) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stop.wait()
    server.shutdown()


class _ServerV6(ThreadingWSGIServer):
    address_family = socket.AF_INET6  # with `::` the addresses of IPv4 too


def serve(host: str, port: int, app: "WSGIApplication") -> ThreadingWSGIServer:
    """Bind and return the server, for the caller to run. Raises OSError where the port is taken."""
    kind = _ServerV6 if ":" in host else ThreadingWSGIServer
    return make_server(host, port, app, server_class=kind, handler_class=_Quiet)


def address(host: str, port: int) -> str:
    """Return host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def cannot_listen(error: OSError, host: str, port: int, prefix: str, example: int) -> str:
    """Return what to tell of the OSError of `serve`: the setting to change, with another value as an example."""
    no_such_host = isinstance(error, socket.gaierror) or error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    setting, other = (f"{prefix}_HOST", "127.0.0.1") if no_such_host else (f"{prefix}_PORT", example)
    return f"{setting}: cannot listen on {address(host, port)}: {error.strerror}. Move it: {setting}={other}"
