"""GET a page of an engine within a deadline -> its body, or a named reason. The only user of `requests`."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import IncompleteRead
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit
from weakref import WeakSet

import requests
import urllib3
from requests.adapters import HTTPAdapter

from exporter.scrape import Reason, ScrapeError

CHUNK: Final = 64 * 1024
MAX_REDIRECTS: Final = 3
HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4, */*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "apc-exporter",
    # vLLM closes an idle connection after 5 s, less than a scrape interval: a kept one would only race with that.
    "Connection": "close",
}
TOO_LATE: Final = "no complete answer within the time limit; the exporter's is APC_EXPORTER_TIMEOUT"
TLS_ERRORS: Final = (requests.exceptions.SSLError, urllib3.exceptions.SSLError)
TLS_REMEDY: Final = "for a private authority set VLLM_CA_FILE, for plain HTTP write http://"
DNS_ERRORS: Final = (socket.gaierror, urllib3.exceptions.NameResolutionError)
TIMEOUTS: Final = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
CUT_SHORT: Final = (IncompleteRead, urllib3.exceptions.InvalidChunkLength)


class _Adapter(HTTPAdapter):
    """Keeps sight of open connections, so that another thread can end a read that dribbles past its deadline."""

    def __init__(self) -> None:
        super().__init__(max_retries=0)
        self._connections: WeakSet[urllib3.connection.HTTPConnection] = WeakSet()

    def get_connection_with_tls_context(self, *args: object, **kwargs: object) -> urllib3.HTTPConnectionPool:
        pool: urllib3.HTTPConnectionPool
        pool = super().get_connection_with_tls_context(*args, **kwargs)  # type: ignore[arg-type, assignment]
        if "ConnectionCls" not in vars(pool):
            make = pool.ConnectionCls

            def make_seen(*args: object, **kwargs: object) -> urllib3.connection.HTTPConnection:
                connection = make(*args, **kwargs)  # type: ignore[arg-type]
                self._connections.add(connection)  # type: ignore[arg-type]
                return connection  # type: ignore[return-value]

            pool.ConnectionCls = make_seen  # type: ignore[assignment]
        return pool

    def cut(self) -> None:
        for connection in list(self._connections):
            if connection.sock is not None:
                with suppress(OSError):  # it may have ended by itself
                    connection.sock.shutdown(socket.SHUT_RDWR)


class Client:
    """Asks one server, through `requests`' adapter alone: a session would bring proxies, .netrc and cookies.

    `key` goes out as a bearer token; `ca_file` is an authority to trust in place of the usual ones.
    """

    def __init__(self, key: str = "", ca_file: str = "", max_bytes: int = 16 * 2**20) -> None:
        self._adapter = _Adapter()
        self._headers = HEADERS | ({"Authorization": f"Bearer {key}"} if key else {})
        self._verify = ca_file or True
        self._max_bytes = max_bytes
        self._requests: dict[str, requests.PreparedRequest] = {}

    def get(self, url: str, deadline: float) -> tuple[bytes, str]:
        """Return the body at `url` and its content type; `deadline` is a time of `time.monotonic()`.

        Raises ScrapeError with the reason for everything but a complete answer of status 200.
        """
        try:
            with self._open(url, deadline) as response:
                _check_status(response)
                body = b"".join(self._chunks(response, deadline))
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _reason(error, urlsplit(url)) from error
        return body, response.headers.get("Content-Type", "")

    def cut(self) -> None:
        """End the requests under way; safe from any thread."""
        self._adapter.cut()

    def _open(self, url: str, deadline: float) -> requests.Response:
        request = self._request(url)
        for _ in range(MAX_REDIRECTS + 1):
            response = self._adapter.send(request, stream=True, timeout=_remaining(deadline), verify=self._verify)
            if not response.is_redirect:
                return response
            response.close()
            url = _redirected(url, response.headers["Location"])
            request = self._prepare(url)
        raise ScrapeError(Reason.REDIRECT, f"more than {MAX_REDIRECTS} redirects")

    def _request(self, url: str) -> requests.PreparedRequest:
        """Return the request for a URL that is asked again and again; preparing takes a third of a page's time."""
        if url not in self._requests:
            self._requests[url] = self._prepare(url)
        return self._requests[url]

    def _prepare(self, url: str) -> requests.PreparedRequest:
        return requests.Request("GET", url, self._headers).prepare()

    def _chunks(self, response: requests.Response, deadline: float) -> Iterator[bytes]:
        size = 0
        while chunk := response.raw.read1(CHUNK, decode_content=True):
            size += len(chunk)
            if size > self._max_bytes:
                raise ScrapeError(
                    Reason.TOO_LARGE,
                    f"more than {self._max_bytes / 2**20:g} MiB: no engine's /metrics? "
                    "The exporter's limit is APC_EXPORTER_MAX_BODY_MIB",
                )
            _remaining(deadline)
            yield chunk


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise ScrapeError(Reason.TIMEOUT, TOO_LATE)
    return left


def _check_status(response: requests.Response) -> None:
    status = response.status_code
    if status == requests.codes.ok:
        return
    if status in {401, 403, 407}:
        raise ScrapeError(Reason.AUTH, f"HTTP {status}: this page wants a key; set VLLM_METRICS_API_KEY")
    if status >= 500:  # noqa: PLR2004
        raise ScrapeError(Reason.HTTP_5XX, f"HTTP {status}")
    if status == requests.codes.partial_content:
        raise ScrapeError(Reason.TRUNCATED, f"HTTP {status}: a part of the page alone")
    if status < 300:  # noqa: PLR2004
        raise ScrapeError(Reason.EMPTY_BODY, f"HTTP {status}: no page, although nothing failed")
    if status < 400:  # noqa: PLR2004
        raise ScrapeError(Reason.REDIRECT, f"HTTP {status}, and no address to go on to")
    raise ScrapeError(Reason.HTTP_4XX, f"HTTP {status}: is this the address of the engine?")


def _redirected(url: str, location: str) -> str:
    """Return the URL that `url` redirects to. Raises ScrapeError if it is none, or another server's."""
    try:
        target = urljoin(url, location)
        told = urlsplit(target)
        same = _same_server(urlsplit(url), told)
    except ValueError as error:
        raise ScrapeError(Reason.REDIRECT, "redirected to what is no URL: set the URL of the engine itself") from error
    if not same:
        raise ScrapeError(
            Reason.REDIRECT,
            f"redirected to {told.scheme}://{_place(told)}, another server: set the URL of the engine itself",
        )
    return target


def _same_server(one: SplitResult, other: SplitResult) -> bool:
    """Whether the key may follow: the same origin, or the same name's default ports upgraded to https."""
    if (one.scheme, one.netloc) == (other.scheme, other.netloc):
        return True
    return (
        one.hostname == other.hostname
        and (one.scheme, other.scheme) == ("http", "https")
        and not (one.port or other.port)
    )


def _place(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2]


def _reason(error: BaseException, url: SplitResult) -> ScrapeError:
    """Name what went wrong on the way; libraries wrap the cause several layers deep."""
    chain = list(_causes(error))
    where = _place(url)
    for kinds, reason, detail in (
        (TLS_ERRORS, Reason.TLS, f"no trusted TLS connection to {where}; {TLS_REMEDY}"),
        (DNS_ERRORS, Reason.DNS, f"the name {url.hostname} is not known here"),
        (ConnectionRefusedError, Reason.REFUSED, f"nothing listens at {where}"),
        (TIMEOUTS, Reason.TIMEOUT, TOO_LATE),
        (CUT_SHORT, Reason.TRUNCATED, "the answer ended before its announced length"),
    ):
        if any(isinstance(cause, kinds) for cause in chain):
            return ScrapeError(reason, detail)
    return ScrapeError(Reason.NETWORK, f"{type(chain[-1]).__name__} while talking to {where}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then what it was raised from or carries, to the innermost."""
    seen: set[int] = set()
    queue = [error]
    while queue:
        current = queue.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inner = [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]
        queue.extend(item for item in inner if isinstance(item, BaseException))
