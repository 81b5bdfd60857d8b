"""What a server answered, or an exception on the way -> the class of the failure and what to say of it. Pure."""

import json
import re
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx2

from probes.outcome import MAX_READ, ErrorClass, Failure, Place, key_fault

MAX_PAGE: Final = 8192  # characters of a web page that are looked at

# --- What a server says about an error --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as the body tells it; `kind` has its type and code in lower case."""

    message: str
    code: int | None = None
    kind: str = ""
    fields: tuple[str, ...] = ()  # the parameters that it is about, each with those around it


def parsed(body: str) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of the body; None if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def fault_in(data: object) -> Fault | None:
    """Find the error in the JSON of an answer or of a chunk, in any of the usual shapes."""
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict) and error:
        return _fault(error)
    if isinstance(error, str) and error:
        return _fault({"type": error, **data, "message": data.get("error_description") or data.get("message") or error})
    if "choices" in data or "data" in data:
        return None
    detail = data.get("detail")
    if isinstance(detail, list):  # FastAPI's: one entry for each parameter
        entries = [entry for entry in detail if isinstance(entry, dict)]
        places = [entry["loc"] for entry in entries if isinstance(entry.get("loc"), list)]
        fields = [str(part) for place in places for part in place]
        kinds = " ".join(str(entry.get("type", "")) for entry in entries)
        messages = "; ".join(str(entry.get("msg", "")) for entry in entries)
        return Fault(messages[:MAX_READ], None, kinds.lower(), tuple(fields))
    message = data.get("message") or data.get("msg") or detail
    return _fault({**data, "message": message}) if message else None


def _fault(error: Mapping[str, Any]) -> Fault:
    code, kind, param = error.get("code"), error.get("type"), error.get("param")
    number = int(str(code)) if re.fullmatch(r"-?[0-9]{1,9}", str(code)) else None
    fields = tuple(param.split(".")) if isinstance(param, str) else ()
    return Fault(str(error.get("message") or error)[:MAX_READ], number, f"{kind} {code}".lower(), fields)


REFUSAL: Final = re.compile(
    r"unknown|un(?:supported|recogni[sz]ed|expected)|not (?:supported|permitted)|is not allowed|does not support"
    r"|extra[ _](?:inputs|fields|forbidden)|additional propert"
)


def refused_parameters(status: int, body: str, sent: Collection[str]) -> tuple[str, ...]:
    """Return those of the parameters sent that the answer says are not taken at all, whatever their value."""
    fault = fault_in(parsed(body)) or Fault(body[:MAX_READ])
    if status not in {400, 422} or "unsupported_value" in fault.kind:
        return ()
    if not REFUSAL.search(f"{fault.kind} {fault.message}".lower()):
        return ()
    words = fault.fields if set(fault.fields) & set(sent) else re.findall(r"\w+", fault.message)
    named = [name for name in sent if name in words]
    if "continuous_usage_stats" in named:  # a part of stream_options, which may do without it
        return ("continuous_usage_stats",)
    return tuple(named)


# --- Classification ---------------------------------------------------------------------------------------------

CONTEXT: Final = re.compile(
    r"context_length_exceeded|maximum (?:context|model) length|max_model_len|longer than the (?:maximum|model)"
    r"|prompt is too long|context window"
)
MODEL: Final = re.compile(r"model_not_found|(?:unknown|invalid) model\b|\bmodel\b.*\b(?:does not exist|not found)")
OAUTH: Final = re.compile(
    r"\boauth|authorization_uri|resource_metadata|error_description|invalid_(?:token|grant|client)|insufficient_scope|\bscope="
)
LOGIN_PLACE: Final = re.compile(r"log[_-]?[io]n|sign[_-]?[io]n|oauth|saml|\bsso\b|authorize", re.IGNORECASE)
LOGIN_PAGE: Final = re.compile(
    r"<title>[^<]*(?:(?:sign|log)[ -]?[io]n\b|登录)|type=[\"']?password|/oauth2/"
    r"|<form[^>]+action=[\"'][^\"']*(?:login|sign|oauth|saml|sso)",
    re.IGNORECASE,
)
PLAIN_TO_TLS: Final = re.compile(r"http request (?:was sent )?to (?:an )?https")
LOGIN_SAID: Final = "a login page: token missing or expired"
PROXY_STATUSES: Final = {403, 502, 503, 504}


def of_answer(status: int, headers: Mapping[str, str], body: str, place: Place) -> Failure:
    """Say what an answer means that is not the stream, or the list, that was asked for."""
    header = {name.lower(): value for name, value in headers.items()}
    html = "html" in header.get("content-type", "") or body.lstrip("\ufeff \r\n\t").startswith("<")
    fault = fault_in(parsed(body))
    if 300 <= status < 400:  # noqa: PLR2004
        return _redirect(status, header.get("location", ""), place)
    if html and LOGIN_PAGE.search(body[:MAX_PAGE]):
        return place.failure(ErrorClass.HTML_LOGIN, f"{place.host} answered with {LOGIN_SAID}", status=status)
    if status == 407 or (status in PROXY_STATUSES and header.get("via") and not fault):  # noqa: PLR2004
        via = header.get("via") or header.get("proxy-authenticate", "")
        return place.failure(ErrorClass.PROXY, f"HTTP {status}: a proxy answered ({via})", status=status)
    if status < 300:  # noqa: PLR2004
        return _of_success(status, body, place, fault, html=html)
    text = fault.message if fault else "an HTML page" if html else body[:MAX_READ]
    wait = _seconds(header.get("retry-after", ""))
    kind = _class_of(status, fault or Fault(text), f"{header.get('www-authenticate', '')} {body}".lower())
    if kind is ErrorClass.AUTH and (hint := key_fault(place.key)):
        text = f"{hint}; {text}"
    elif kind is ErrorClass.BASE_URL:
        text = f"nothing at {urlsplit(place.url).path}; {text}"
    code = fault.code if fault else None
    message = f"HTTP {status}: {text}".rstrip(":; ")
    return place.failure(kind, message, status=status, retry_after=wait, upstream_code=code)


def of_fault(fault: Fault, place: Place) -> Failure:
    """Say what an error means that came with the status 200."""
    message = f"HTTP 200, but an error in it: {fault.message}"
    return place.failure(ErrorClass.ERROR_IN_200, message, status=200, upstream_code=fault.code)


def of_exception(error: BaseException, place: Place) -> Failure:
    """Say what an exception on the way means. Its own text may hold the key and is not used."""
    chain = list(_causes(error))
    for kinds, error_class, message in (
        (ssl.SSLError, ErrorClass.TLS, "no trusted TLS connection to {host}"),
        ((socket.gaierror, UnicodeError), ErrorClass.DNS, "the host name in {host} is not known here"),
        (ConnectionRefusedError, ErrorClass.CONNECTION_REFUSED, "nothing listens at {host}"),
        ((httpx2.ConnectTimeout, httpx2.PoolTimeout), ErrorClass.TIMEOUT_CONNECT, "no connection to {host} in time"),
        (httpx2.TimeoutException, ErrorClass.TIMEOUT_TOTAL, "no complete answer from {host} in time"),
        ((httpx2.InvalidURL, httpx2.UnsupportedProtocol), ErrorClass.BASE_URL, "this is no http or https address"),
        ((httpx2.TransportError, httpx2.DecodingError, OSError), ErrorClass.NETWORK, "{cause} while talking to {host}"),
    ):
        if any(isinstance(cause, kinds) for cause in chain):
            return place.failure(error_class, message.format(host=place.host, cause=type(chain[-1]).__name__))
    return place.failure(ErrorClass.INTERNAL, f"{type(chain[-1]).__name__} within the probe")


def _redirect(status: int, location: str, place: Place) -> Failure:
    """Nothing is followed: a POST would turn into a GET, and the key could reach another host."""
    try:
        told = urlsplit(urljoin(place.url, location))
    except ValueError:
        return place.failure(ErrorClass.BASE_URL, f"HTTP {status}: redirected to no address", status=status)
    host = told.netloc.rpartition("@")[2]
    moved = told.path.rstrip("/") == urlsplit(place.url).path.rstrip("/")
    if not moved and LOGIN_PLACE.search(f"{host}{told.path}"):
        return place.failure(ErrorClass.HTML_LOGIN, f"{host} answers with {LOGIN_SAID}", status=status)
    message = f"HTTP {status}: redirected to {told.scheme}://{host}{told.path}"
    return place.failure(ErrorClass.BASE_URL, message, status=status)


def _of_success(status: int, body: str, place: Place, fault: Fault | None, *, html: bool) -> Failure:
    if fault:
        return of_fault(fault, place)
    if html:
        message = f"{place.host} answered with a web page, not with the API"
        return place.failure(ErrorClass.BASE_URL, message, status=status)
    data = parsed(body)
    if not body.strip():
        message = "an empty answer"
    elif isinstance(data, dict) and data.get("choices"):
        message = "a whole answer in one piece: the server, or a gateway before it, does not stream"
    else:
        message = f"HTTP {status}, but neither a token nor a list: {body}"
        return place.failure(ErrorClass.ERROR_IN_200, message, status=status)
    return place.failure(ErrorClass.STREAM_WITHOUT_TOKEN, message, status=status)


def _class_of(status: int, fault: Fault, everything: str) -> ErrorClass:  # noqa: PLR0911
    said = f"{fault.kind} {fault.message}".lower()
    if status in {401, 403} and "model_not_found" not in said:
        return ErrorClass.OAUTH if OAUTH.search(everything) else ErrorClass.AUTH
    if "model_not_found" in said or (status in {400, 404} and (MODEL.search(said) or "model" in fault.fields)):
        return ErrorClass.UNKNOWN_MODEL
    if status == 413 or (status in {400, 422} and CONTEXT.search(said)):  # noqa: PLR2004
        return ErrorClass.CONTEXT_TOO_LONG
    if status in {404, 405}:
        return ErrorClass.BASE_URL
    if status in {402, 429}:
        return ErrorClass.RATE_LIMITED
    if PLAIN_TO_TLS.search(everything):
        return ErrorClass.TLS
    return ErrorClass.SERVER_ERROR if status >= 500 else ErrorClass.BAD_REQUEST  # noqa: PLR2004


def _seconds(retry_after: str) -> float | None:
    """Return the seconds to wait; the header has them, or a date."""
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]+)?", retry_after):
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then what it was raised from, to the innermost."""
    current: BaseException | None = error
    while current:
        yield current
        current = current.__cause__ or current.__context__
