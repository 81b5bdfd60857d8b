"""What a server answered, or an exception on the way -> the class of the failure and what to say of it. Pure."""

import re
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urljoin, urlsplit

import httpx2

from probes import signin, wording
from probes.fault import Fault, fault_in, parsed
from probes.outcome import MAX_READ, ErrorClass, Failure, Place, key_fault

# --- Parameters that are refused --------------------------------------------------------------------------------

REFUSAL: Final = re.compile(
    r"(?:unknown|un(?:supported|recogni[sz]ed|expected))(?! (?:model|value|error))"
    r"|do(?:es)?(?: not|n't) (?:support|recogni[sz]e|accept|allow)(?! model)"
    r"|(?:not|n't|no longer) (?:supported|permitted|recogni[sz]ed|accepted|allowed|compatible)"
    r"|(?:cannot|can't|must not|may not) (?:be (?:used|set|given|sent|specified)|specify|use)"
    r"|extra[ _](?:inputs|fields|forbidden)|additional propert|(?:is|are|been) (?:deprecated|removed)|instead of"
    r"|not (?:a )?(?:valid|known|supported|recogni[sz]ed) (?:parameter|argument|field|property|key|option)"
    r"|(?:invalid|illegal) (?:param(?:eter)?|argument|field|property|key|option)(?:s|\(s\))?\W+\w+\W*$"
    r"|不支持(?!的?模型)|不被支持|不允许|未知的?(?:参数|字段)|(?:无效|非法)的?(?:参数|字段)\W*\w+\W*$"
)
# The parameter is known, its value is not taken.
OF_VALUE: Final = re.compile(r"\bvalue\b|(?:greater|less|more|larger) than|at (?:least|most)|must be\b|support [0-9]")
CLAUSE: Final = re.compile(r"[;\n。\uff1b]|\.(?:\s|$)")
# A name that is not told with its value.
NAME: Final = re.compile(r"\b[a-z_]+\b(?!['\"]?\s*(?:=|:\s*[0-9{\[]))", re.ASCII)
ECHO: Final = re.compile(r"['\"]input['\"]:.*?(?=\}, \{|$)", re.DOTALL)  # pydantic repeats what it was sent


def refused_parameters(status: int, body: str, sent: Collection[str]) -> tuple[str, ...]:
    """Return those of the parameters sent that the answer says are not taken at all, whatever their value."""
    fault = fault_in(parsed(body)) or Fault(body[:MAX_READ])
    if status not in {400, 422} or "unsupported_value" in fault.kind:
        return ()
    clauses = CLAUSE.split(ECHO.sub("", fault.message))
    by_code = REFUSAL.search(fault.kind)
    refusing = [clause for clause in clauses if by_code or _refuses(clause.lower())]
    told = fault.fields if refusing and set(fault.fields) & set(sent) else NAME.findall(" ".join(refusing))
    named = [name for name in sent if name in told]
    if "continuous_usage_stats" in named:  # a part of stream_options, which may do without it
        return ("continuous_usage_stats",)
    return tuple(named)


def _refuses(clause: str) -> bool:
    return bool(REFUSAL.search(clause)) and not OF_VALUE.search(clause)


# --- Classification ---------------------------------------------------------------------------------------------

LOGIN_SAID: Final = "a login page: token missing or expired"
PROXY_STATUSES: Final = {403, 502, 503, 504}
PROXY_HEADERS: Final = ("x-squid-error", "proxy-agent", "proxy-authenticate")
# Those stand before gateways, and answer in their name.
FRONTS: Final = re.compile(
    r"google|varnish|fastly|cloudfront|cloudflare|akamai|kong|envoy|istio|apisix|nginx|tengine|haproxy|traefik"
    r"|caddy|azure|vegur|heroku|fly\.io|vercel|kunlun",
    re.IGNORECASE,
)


def of_answer(status: int, headers: Mapping[str, str], body: str, place: Place) -> Failure:
    """Say what an answer means that is not the stream, or the list, that was asked for."""
    header = {name.lower(): value for name, value in headers.items()}
    html = "html" in header.get("content-type", "") or body.lstrip("\ufeff \r\n\t").startswith("<")
    fault = fault_in(parsed(body))
    if 300 <= status < 400:  # noqa: PLR2004
        return _redirect(status, header.get("location", ""), place)
    if status != 407 and html and signin.is_page(body, place, of_success=status < 300):  # noqa: PLR2004
        return place.failure(ErrorClass.HTML_LOGIN, f"{place.host} answered with {LOGIN_SAID}", status=status)
    proxy = _proxy(header, place)
    if status == 407 or (status in PROXY_STATUSES and proxy and not fault):  # noqa: PLR2004
        return place.failure(ErrorClass.PROXY, f"HTTP {status}: a proxy answered ({proxy})", status=status)
    if status < 300:  # noqa: PLR2004
        return _of_success(status, body, place, fault, html=html)
    text = fault.message if fault else "an HTML page" if html else body[:MAX_READ]
    wait = _seconds(header.get("retry-after", ""))
    kind = wording.class_of(status, fault or Fault(text), f"{header.get('www-authenticate', '')} {body}".lower())
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
    chain = list(causes(error))
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
    if not moved and signin.leads_there(told, place):
        return place.failure(ErrorClass.HTML_LOGIN, f"{host} answers with {LOGIN_SAID}", status=status)
    message = f"HTTP {status}: redirected to {told.scheme}://{host}{told.path}"
    return place.failure(ErrorClass.BASE_URL, message, status=status)


def _proxy(header: Mapping[str, str], place: Place) -> str:
    """Return the name of a proxy by which an answer came; "" if there is none but the gateway's own front."""
    own = urlsplit(place.url).hostname
    for stop in header.get("via", "").split(","):
        if stop.strip() and not FRONTS.search(stop) and own not in re.split(r"[^\w.-]+", stop):
            return stop.strip()
    return next((header[name] for name in PROXY_HEADERS if name in header), "")


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


def _seconds(retry_after: str) -> float | None:
    """Return the seconds to wait; the header has them, or a date."""
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]+)?", retry_after):
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then what it was raised from, to the innermost."""
    current: BaseException | None = error
    while current:
        yield current
        current = current.__cause__ or current.__context__
