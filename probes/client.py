"""One streaming chat completion -> what it took and what it said. The only user of `openai`."""

import logging
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import httpx2
import openai
from openai import APIResponse, OpenAI

from probes import classify, outcome
from probes.fault import parsed
from probes.outcome import ErrorClass, Failed, Failure, Names, Place
from probes.stream import BROKEN_OFF, CachedState, Mark, Stream

__all__ = ["CachedState", "Client", "Endpoint", "Failed", "Mark", "Request", "Result"]

RAW_RESPONSE_HEADER: Final = "x-stainless-raw-response"  # by which openai knows a response to hand out unread
MAX_BYTES: Final = 32 * 2**20  # of one answer
MAX_OFFERED: Final = 8  # model ids in a message
DRAIN: Final = 0.2  # seconds for the end of the body after [DONE], so that the connection can be kept
IDLE: Final = 4.0  # seconds that a connection is kept; vLLM closes it after 5
KEPT_HEADERS: Final = ("host", "accept", "content-type", "content-length", RAW_RESPONSE_HEADER)
OWN_HEADERS: Final = {"accept-encoding": "identity", "user-agent": "apc-probe"}
CORK: Final = getattr(socket, "TCP_CORK", None)  # Linux has it
CHAT: Final = "/v1/chat/completions"
CLOSED: Final = ErrorClass.NETWORK  # a request that close() ended
CLOSING: Final = 0.2  # seconds that the request under way gets to end
TOLD_TO_END: Final = "given up: the probe was told to end"
log = logging.getLogger(__name__)
_Ask = Callable[[], AbstractContextManager[APIResponse[Any]]]

# Below that it would log the headers of answers, in which a server may repeat the key.
logging.getLogger("httpcore2").setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: its URL without /v1, and the model to ask, else the first that it lists."""

    base_url: str
    api_key: str = field(default="", repr=False)
    model: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A chat completion to ask for; `extra` goes into the body beside the usual fields."""

    messages: tuple[Mapping[str, str], ...]
    max_tokens: int
    extra: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What one request took and said. Times in seconds since it was sent; `started_at` in Unix seconds.

    `ttft` is None exactly if there is a `failure`. `dropped` are the parameters that this endpoint refuses.
    """

    ttft: float | None
    total: float
    started_at: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cached_state: CachedState = CachedState.ABSENT
    marks: frozenset[Mark] = frozenset()
    dropped: tuple[str, ...] = ()
    failure: Failure | None = None


class _Exchange:
    """One request: its deadlines, and what came of it. It begins when it is sent, else with the call.

    At a deadline, a timer shuts the socket down, which nothing that trickles in can put off.
    """

    def __init__(self, headers: Mapping[str, str], cut: Callable[[], None]) -> None:
        self.headers = headers
        self.begin()
        self.sent = False
        self.status = 0
        self.answer_headers: Mapping[str, str] = {}
        self.answer = Stream()
        self.refusal = ""  # the body that came with a status of failure
        self.failure: Failure | None = None
        self.expired: ErrorClass | None = None
        self._cut = cut
        self._lock = threading.Lock()
        self._timers: dict[ErrorClass, threading.Timer] = {}
        self._ended = False

    def begin(self) -> None:
        """Count from now, `began` by time.perf_counter(), `began_at` in Unix seconds."""
        self.began, self.began_at = time.perf_counter(), time.time()

    def arm(self, seconds: float, error_class: ErrorClass) -> None:
        """Set the deadline of that class."""
        self.disarm(error_class)
        timer = self._timers[error_class] = threading.Timer(seconds, self.expire, (error_class,))
        timer.daemon = True
        timer.start()

    def disarm(self, error_class: ErrorClass) -> None:
        """Forget the deadline of that class."""
        if error_class in self._timers:
            self._timers.pop(error_class).cancel()

    def end(self) -> None:
        """Forget all deadlines: the connection may be in the pool, and is not to be cut any more."""
        with self._lock:
            self._ended = True
        for error_class in list(self._timers):
            self.disarm(error_class)

    def expire(self, error_class: ErrorClass) -> None:
        """End the request as one that failed so, unless it has ended."""
        with self._lock:
            if not self._ended:
                self.expired = self.expired or error_class
                self._cut()


class Client:
    """Asks one server, one request at a time, over a connection that is kept. Follows no redirect.

    It ignores the proxies, credentials and headers that the environment has for such clients. Deadlines in seconds:
    for connecting (one address; a name service that hangs is not bounded), from sending a request to the first token,
    and for a whole call. `names` are the settings that its failures speak of.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        first_token_timeout: float = 10.0,
        total_timeout: float = 30.0,
        connect_timeout: float = 5.0,
        names: Names | None = None,
    ) -> None:
        """Connect to nothing yet. Raises Failed if the CA file is unusable."""
        self._base_url = endpoint.base_url.rstrip("/")
        self._key = endpoint.api_key
        self._asked_model = self._model = endpoint.model
        self._first_token_timeout = first_token_timeout
        self._total_timeout = total_timeout
        self._names = names or Names()
        self._lock = threading.Lock()
        self._dropped: tuple[str, ...] = ()
        self._closed = False
        self._reported = False
        self._exchange = _Exchange({}, self._cut)
        self._network: Any = None  # httpcore's stream of the connection in use
        connecting = min(connect_timeout, total_timeout)
        transport = httpx2.Client(
            verify=_trusting(endpoint.ca_file, self._place("")) if endpoint.ca_file else True,
            trust_env=False,
            follow_redirects=False,
            # `pool` bounds the wait for a connection that a request before has not given back, or a close took away.
            timeout=httpx2.Timeout(None, connect=connecting, pool=connecting),
            limits=httpx2.Limits(max_connections=1, keepalive_expiry=IDLE),
            event_hooks={"request": [self._before_sending]},
        )
        # The key is put in by _before_sending, which also takes out what the environment made this client add.
        self._api = OpenAI(base_url=f"{self._base_url}/v1", api_key="none", max_retries=0, http_client=transport)

    def models(self) -> list[str]:
        """Return the ids that the server lists, having connected to it. Raises Failed."""
        with self._lock:
            return self._models(time.monotonic() + self._total_timeout)

    def send(self, request: Request) -> Result:
        """Send the request; once more for each parameter that is refused. Never raises."""
        with self._lock:
            deadline = time.monotonic() + self._total_timeout
            if not self._model:
                with suppress(Failed):
                    self._models(deadline)
            messages: Any = [dict(message) for message in request.messages]
            create = partial(self._api.chat.completions.with_streaming_response.create, messages=messages, stream=True)
            while True:
                body = self._body_of(request)
                ask = partial(create, model=self._model, extra_body=body)
                exchange = self._receive(ask, request.headers, self._place(CHAT), deadline)
                sent = [name for name in (*body, *body.get("stream_options", ())) if name != "max_completion_tokens"]
                refused = classify.refused_parameters(exchange.status, exchange.refusal, sent)
                if not refused:
                    return self._result(body, exchange, deadline)
                self._dropped += refused

    def close(self) -> None:
        """Close the connection. From another thread, this ends the request under way: at once if it has been sent."""
        self._closed = True
        self._exchange.expire(CLOSED)  # closing a socket would not wake the thread that reads it
        if self._lock.acquire(timeout=CLOSING):  # a pool must not be closed under a request
            try:
                self._api.close()
            finally:
                self._lock.release()

    def _models(self, deadline: float) -> list[str]:
        place = self._place("/v1/models")
        exchange = self._receive(self._api.models.with_streaming_response.list, {}, place, deadline)
        data = parsed(exchange.answer.text)
        entries = data.get("data") if isinstance(data, dict) else None
        if exchange.failure or not isinstance(entries, list):
            answer = exchange.status, exchange.answer_headers, exchange.answer.text
            raise Failed(exchange.failure or classify.of_answer(*answer, place))
        ids = [str(entry["id"]) for entry in entries if isinstance(entry, dict) and entry.get("id")]
        self._model = self._asked_model or next(iter(ids), "")  # the server may have been started with another one
        return ids

    def _body_of(self, request: Request) -> dict[str, Any]:
        options = {"include_usage": True, "continuous_usage_stats": True}
        options = {name: value for name, value in options.items() if name not in self._dropped}
        body = {"max_tokens": request.max_tokens, "stream_options": options, **request.extra}
        limit = {"max_completion_tokens": request.max_tokens} if "max_tokens" in self._dropped else {}
        return {name: value for name, value in body.items() if name not in self._dropped} | limit

    def _receive(self, ask: _Ask, headers: Mapping[str, str], place: Place, deadline: float) -> _Exchange:
        """Send a request and read its answer; the deadline is a time of `time.monotonic()`."""
        exchange = self._exchange = _Exchange(headers, self._cut)
        if not outcome.sendable(self._key):
            exchange.failure = place.failure(ErrorClass.AUTH, outcome.key_fault(self._key))
            return exchange
        exchange.arm(deadline - time.monotonic(), ErrorClass.TIMEOUT_TOTAL)
        if self._closed:  # close() may have seen the exchange before this one
            exchange.end()
            exchange.failure = place.failure(CLOSED, TOLD_TO_END)
            return exchange
        try:
            with ask() as response:
                exchange.status, exchange.answer_headers = response.status_code, response.headers
                self._read(response.http_response, exchange)
        except openai.APIStatusError as error:
            exchange.status, exchange.refusal = error.status_code, error.response.text
            exchange.failure = classify.of_answer(exchange.status, error.response.headers, exchange.refusal, place)
        except Exception as error:  # noqa: BLE001 - of whatever kind, it is what came of the request
            exchange.failure = classify.of_exception(error, place)
            if exchange.failure.error_class is ErrorClass.INTERNAL:
                self._report(error)
            if exchange.status and exchange.failure.error_class is ErrorClass.NETWORK:
                exchange.failure = place.failure(ErrorClass.STREAM_TRUNCATED, BROKEN_OFF, status=exchange.status)
        exchange.end()
        exchange.answer.end()
        if exchange.expired:
            exchange.failure = self._expiry(exchange, place)
        return exchange

    def _report(self, error: Exception) -> None:
        """Log where a fault of the probe's own arose, once; its text may hold the key and is left out."""
        if not self._reported:
            self._reported = True
            *_, cause = classify.causes(error)
            log.error(
                "%s within the probe:\n%s", type(cause).__name__, "".join(traceback.format_tb(cause.__traceback__))
            )

    def _read(self, response: httpx2.Response, exchange: _Exchange) -> None:
        answer, size = exchange.answer, 0
        for piece in response.iter_bytes():
            at = time.perf_counter()
            size += len(piece)
            if exchange.expired or size > MAX_BYTES:
                return
            if not answer.done:
                answer.feed(piece, at)
                if answer.first_token is not None:
                    exchange.disarm(ErrorClass.TIMEOUT_FIRST_TOKEN)
                if answer.done:
                    exchange.arm(DRAIN, ErrorClass.TIMEOUT_TOTAL)

    def _expiry(self, exchange: _Exchange, place: Place) -> Failure:
        if exchange.expired is CLOSED:
            return place.failure(CLOSED, TOLD_TO_END)
        if not exchange.sent:
            return place.failure(ErrorClass.TIMEOUT_CONNECT, f"no connection to {place.host} in time")
        if exchange.expired is ErrorClass.TIMEOUT_FIRST_TOKEN:
            return place.failure(exchange.expired, f"no token within {self._first_token_timeout:g} s")
        return place.failure(ErrorClass.TIMEOUT_TOTAL, f"no complete answer within {self._total_timeout:g} s")

    def _result(self, body: Mapping[str, Any], exchange: _Exchange, deadline: float) -> Result:
        answer = exchange.answer
        failure = answer.failure(exchange.status, exchange.answer_headers, self._place(CHAT), exchange.failure)
        end = time.perf_counter() if failure or answer.last is None else answer.last
        if failure and failure.error_class is ErrorClass.UNKNOWN_MODEL:
            with suppress(Failed):
                offered = ", ".join(self._models(deadline)[:MAX_OFFERED])
                failure = replace(failure, message=f"{failure.message} It offers: {offered}")
        first = None if failure else answer.first_token
        cached_tokens, cached_state = answer.cached
        return Result(
            ttft=None if first is None else first - exchange.began,
            total=end - exchange.began,
            started_at=exchange.began_at,
            prompt_tokens=answer.tokens("prompt_tokens"),
            completion_tokens=answer.tokens("completion_tokens"),
            cached_tokens=cached_tokens,
            cached_state=cached_state,
            marks=frozenset() if failure else answer.marks(body, exchange.began),
            dropped=self._dropped,
            failure=failure,
        )

    def _place(self, path: str) -> Place:
        return Place(f"{self._base_url}{path}", self._key, self._names)

    def _before_sending(self, request: httpx2.Request) -> None:
        kept = {name: request.headers[name] for name in KEPT_HEADERS if name in request.headers}
        key = {"authorization": f"Bearer {self._key}"} if self._key else {}
        request.headers = httpx2.Headers({**kept, **OWN_HEADERS, **key, **self._exchange.headers})
        request.extensions = {**request.extensions, "trace": self._trace}

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Hear from httpcore of the connection, and of the moments at which it writes the request."""
        exchange = self._exchange
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            self._network = info["return_value"]
        elif event == "http11.send_request_headers.started":
            if exchange.expired:
                raise TimeoutError
            exchange.arm(self._first_token_timeout, ErrorClass.TIMEOUT_FIRST_TOKEN)
            exchange.sent = True
            self._hold_back(True)
        elif event == "http11.send_request_body.complete":
            exchange.begin()
            self._hold_back(False)

    def _hold_back(self, held: bool) -> None:
        """Let headers and body leave together: a server that the headers wake delays the body, and so the TTFT."""
        if CORK is not None:
            self._network.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, CORK, held)

    def _cut(self) -> None:
        if self._network:
            with suppress(OSError):  # it may have ended by itself
                self._network.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def _trusting(ca_file: str, place: Place) -> ssl.SSLContext:
    with suppress(OSError):
        return ssl.create_default_context(cafile=ca_file)
    raise Failed(place.failure(ErrorClass.TLS, f"no certificates can be read from {ca_file}"))
