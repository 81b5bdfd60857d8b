"""What can go wrong with a request, told apart, each with a remedy that names the setting. Pure."""

import re
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

MAX_MESSAGE: Final = 200  # characters
MAX_READ: Final = 2000  # characters of a message that are looked at; some patterns are slow on long ones
MIN_COPY: Final = 6  # characters of a key that are taken for a cut copy of it
MIN_KEY: Final = 16  # characters; no provider's keys are shorter


class ErrorClass(StrEnum):
    """Why a request failed. The values are those of the label `reason`."""

    AUTH = "auth"
    OAUTH = "oauth"
    HTML_LOGIN = "html_login"
    BASE_URL = "base_url"
    UNKNOWN_MODEL = "unknown_model"
    CONNECTION_REFUSED = "connection_refused"
    DNS = "dns"
    TLS = "tls"
    PROXY = "proxy"
    NETWORK = "network"  # reset, unreachable, or no HTTP spoken there
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"  # noqa: S105
    TIMEOUT_TOTAL = "timeout_total"
    RATE_LIMITED = "rate_limited"
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    SERVER_ERROR = "server_error"
    ERROR_IN_200 = "error_in_200"
    STREAM_TRUNCATED = "stream_truncated"
    STREAM_WITHOUT_TOKEN = "stream_without_token"  # noqa: S105
    INTERNAL = "internal"  # a fault of the probe's own


REMEDIES: Final = {
    ErrorClass.AUTH: "set {api_key} to a whole key that is valid there: no blank, no quotes, no 'Bearer '",
    ErrorClass.OAUTH: "switch the tool to API-key mode: set {api_key} to an API key, not to an OAuth or session token",
    ErrorClass.HTML_LOGIN: "set {api_key} to a valid key, or {url} to an address that is not behind the sign-in page",
    ErrorClass.BASE_URL: "set {url} to the API's address, such as http://host:8000; /v1 is added to it once: "
    "try adding or removing a path",
    ErrorClass.UNKNOWN_MODEL: "set {model} to an id that the server lists at {url}/v1/models",
    ErrorClass.CONNECTION_REFUSED: "start the engine, or correct host and port in {url}; "
    "within a container, localhost is the container",
    ErrorClass.DNS: "correct the host name in {url}, or the name service of this machine or container",
    ErrorClass.TLS: "for a private authority set {ca_file}; for plain HTTP write http:// in {url}, for TLS https://",
    ErrorClass.PROXY: "let {url} name the engine itself, by a route without the proxy",
    ErrorClass.NETWORK: "check that {url} names an HTTP server (https:// if it speaks TLS) that this machine can reach",
    ErrorClass.TIMEOUT_CONNECT: "check host and port in {url}, and the firewalls on the way",
    ErrorClass.TIMEOUT_FIRST_TOKEN: "the server at {url} accepts and stays silent: look at its queue and its log",
    ErrorClass.TIMEOUT_TOTAL: "the server at {url} answers too slowly: look at its load and its log",
    ErrorClass.RATE_LIMITED: "wait{wait}, probe less often, or raise the limit or balance of the key in {api_key}",
    ErrorClass.BAD_REQUEST: "read the server's message; check that {url} and {model} name a chat model",
    ErrorClass.CONTEXT_TOO_LONG: "shorten the prompt, or let {model} name a model with a longer context",
    ErrorClass.SERVER_ERROR: "look at the log of the server at {url}",
    ErrorClass.ERROR_IN_200: "read the server's message and the log of the gateway at {url}",
    ErrorClass.STREAM_TRUNCATED: "look at the log of the server at {url}, and at the timeouts of proxies before it",
    ErrorClass.STREAM_WITHOUT_TOKEN: "check that {url} and {model} name a chat model that streams its answer",
    ErrorClass.INTERNAL: "report this as a bug of the probe, with the code lines in its log and what {url} points to",
}
AS_ANSWERED: Final = {401: ErrorClass.AUTH, 403: ErrorClass.AUTH, 429: ErrorClass.RATE_LIMITED}


@dataclass(frozen=True, slots=True)
class Names:
    """The settings of a target, as its user spells them."""

    url: str = "VLLM_URL"
    api_key: str = "VLLM_API_KEY"
    model: str = "VLLM_MODEL"
    ca_file: str = "VLLM_CA_FILE"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed; no key is in it. `retry_after` in seconds, `upstream_code` from the body."""

    error_class: ErrorClass
    message: str
    status: int | None = None
    retry_after: float | None = None
    upstream_code: int | None = None
    names: Names = field(default=Names(), repr=False)

    @property
    def remedy(self) -> str:
        """What to do, in one line with the name of the setting."""
        kind = self.error_class
        if kind is ErrorClass.ERROR_IN_200 and self.upstream_code is not None:
            kind = AS_ANSWERED.get(self.upstream_code, kind)
        wait = "" if self.retry_after is None else f" {self.retry_after:g} s"
        return REMEDIES[kind].format(wait=wait, **asdict(self.names))


class Failed(Exception):  # noqa: N818 - the name of a fact
    """There is no answer, for the reason in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.error_class}: {failure.message}")
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request went: the whole URL, the key sent there, and the names of the settings that said so."""

    url: str
    key: str = field(default="", repr=False)
    names: Names = Names()

    @property
    def host(self) -> str:
        """Host and port, without a user or password."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def failure(self, error_class: ErrorClass, message: str, **known: Any) -> Failure:  # noqa: ANN401
        """Return the failure, its message masked."""
        return Failure(error_class, mask(message, self.key), names=self.names, **known)


# --- Keys -------------------------------------------------------------------------------------------------------

SECRETS: Final = re.compile(r"\bbearer\s+\S+|\bsk-[a-z0-9_-]{6,}|[a-z0-9_-]*\*{3,}[a-z0-9_-]*", re.IGNORECASE)


def mask(text: str, key: str) -> str:
    """Return the text in one line of at most 200 characters, without the key, a cut copy of it, or another key."""
    text, whole = text[:MAX_READ], key.strip()
    copies = {part for part in whole.split() if len(part) >= MIN_COPY} | ({whole} if whole else set())
    for length in range(MIN_COPY, len(whole)):
        copies |= {whole[:length].rstrip(), whole[-length:].lstrip()}
    for copy in sorted(copies, key=len, reverse=True):
        if copy in text:
            text = re.sub(rf"[A-Za-z0-9_.-]*{re.escape(copy)}[A-Za-z0-9_.-]*", "***", text)
    text = " ".join(SECRETS.sub("***", text).split())
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def sendable(key: str) -> bool:
    """Whether the key can stand in a header; none can be left out of it."""
    return all(character.isascii() and character.isprintable() and character != " " for character in key)


def key_fault(key: str) -> str:
    """Return what is wrong with the look of a key, without repeating it; "" if nothing is."""
    if not sendable(key):
        return "the key holds a blank, a line break or a character that no key has"
    if not key:
        return "no key was sent"
    if key[0] in "'\"" or key[-1] in "'\"":
        return "the key is in quotes"
    return "the key is short: was it cut?" if len(key) < MIN_KEY else ""
