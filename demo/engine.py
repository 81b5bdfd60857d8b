"""A small simulated vLLM with faults on demand: `python -m demo.engine --port 9000 [--fault NAME[=VALUE]]...`.

It serves the OpenAI endpoints and `/metrics` of a vLLM that runs `demo.tiny_model`: one token per UTF-8 byte and per
special marker, the same prefix cache, and times that grow with the tokens computed. What it writes means nothing.

    GET  /demo/faults                    the faults that are on, and all that there are
    POST /demo/faults {"wedge": true}    switches on; null switches off
"""

import argparse
import json
import math
import re
import signal
import sys
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, islice
from typing import Any, Final

from demo.cache import Allocation, PrefixCache
from demo.exposition import CONTENT_TYPE, Configuration, Stats, engine_text, process_text
from exporter.engine import FIELDS, Dialect, Version

MAX_MODEL_LEN: Final = 8192  # tokens
SPECIALS: Final = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}
END: Final = SPECIALS["<|im_end|>"]
SENTENCES: Final = (
    b"Restart the router, wait for the green light, then try again. ",
    b"The invoice is sent on the first working day of each month. ",
    b"Your ticket has been passed on to the second line. ",
)
RESIDENCY_FIELDS: Final = {"block_lifetime", "block_idle", "block_reuse_gap"}

# --- Faults -----------------------------------------------------------------------------------------------------


def _switch(value: object) -> bool:
    return bool(value)


def _count(value: object) -> int:
    number = int(str(value))
    if number < 1:
        raise ValueError
    return number


def _seconds(value: object) -> float:
    number = float(str(value))
    if not 0 <= number < math.inf:
        raise ValueError
    return number


def _field(value: object) -> str:
    return next(known.name for known in FIELDS if known.name == value)


FAULTS: Final[Mapping[str, tuple[Callable[[object], Any], str]]] = {
    "restart": (_seconds, "once: counters and cache are cleared, connections refused for VALUE seconds"),
    "wedge": (_switch, "completions are accepted and never answered; /health and /metrics go on"),
    "dead": (_switch, "the engine core is dead: /metrics is frozen, /health says 503, completions 500"),
    "apc_off": (_switch, "prefix caching is off"),
    "blocks": (_count, "the cache has VALUE blocks"),
    "block_size": (_count, "a block has VALUE tokens"),
    "spec_decode": (_switch, "a drafter gives up the last block of each hit"),
    "lookup_skipped": (_switch, "no prompt is looked up, as with prompt_logprobs"),
    "null_details": (_switch, "prompt_tokens_details is null"),
    "no_usage": (_switch, "no usage is sent"),
    "buffered": (_switch, "a stream is sent in one piece at its end"),
    "truncated_stream": (_switch, "a stream breaks off after its first token"),
    "slow_first_token": (_seconds, "the first token takes VALUE seconds more"),
    "error_in_200": (_switch, "completions: 200 with an error in the body"),
    "rate_limited": (_switch, "completions: 429 with Retry-After"),
    "server_error": (_switch, "completions: 500"),
    "unauthorized": (_switch, "/v1: 401"),
    "not_found": (_switch, "/v1: 404, as under a wrong base URL"),
    "login_page": (_switch, "/v1: 302 to a login page"),
    "no_metrics": (_switch, "/metrics has no series of the engine, as with --disable-log-stats"),
    "empty_metrics": (_switch, "/metrics is empty"),
    "metrics_500": (_switch, "/metrics: 500"),
    "metrics_html": (_switch, "/metrics is a web page"),
    "slow_metrics": (_seconds, "/metrics takes VALUE seconds"),
    "no_kv_metrics": (_switch, "/metrics lacks the kv_block histograms, as without --kv-cache-metrics"),
    "rename": (_field, "/metrics lacks the field VALUE of exporter/engine.py, as after a rename"),
}


def checked_faults(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values as the faults take them, None for off. Raise ValueError."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in FAULTS:
            raise ValueError(f"no fault {name!r}; there are {', '.join(FAULTS)}")
        convert, meaning = FAULTS[name]
        try:
            checked[name] = None if value is None or value is False else convert(value)
        except (ValueError, StopIteration):
            raise ValueError(f"{name}={value}: {meaning}") from None
    return checked


# --- The engine core --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Settings(Configuration):
    """The options of the command line."""

    api_key: str | None = None
    prompt_tokens_details: bool = True
    prefill_us_per_token: float = 60.0
    base_ms: float = 8.0  # of each prefill
    decode_ms: float = 4.0  # of each token after the first

    @property
    def capacity(self) -> int:
        """The most tokens that one request can have; vLLM keeps one block for itself."""
        return min(MAX_MODEL_LEN, (self.blocks - 1) * self.block_size)


@dataclass(eq=False)
class Request:
    """One sequence to generate."""

    prompt: list[int]
    extra: tuple[str, ...]
    read: bool  # look the prompt up in the cache
    answer: Iterator[int]
    slow_by: float = 0.0  # seconds
    cached_tokens: int = 0  # known once there is a token


class Rank:
    """One engine core: a queue, first come first served, one prefill at a time, a cache of its own."""

    def __init__(self, settings: Settings, pause: Callable[[float], object]) -> None:
        self.changed = threading.Condition()
        self.settings = settings
        self.stats = Stats(settings)
        self.queue: deque[Request] = deque()
        self.running: set[Allocation] = set()
        self._prefilling = False
        self._pause = pause
        self.configure(settings)

    @property
    def load(self) -> int:
        """Requests that run or wait."""
        return len(self.running) + len(self.queue)

    def configure(self, settings: Settings) -> None:
        """Go on with an empty cache; requests that run keep their blocks of the old one."""
        with self.changed:
            self.settings = self.stats.configuration = settings
            blocks, size, given_up = settings.blocks - 1, settings.block_size, int(settings.speculative)
            self.cache = PrefixCache(blocks, size, caching=settings.prefix_caching, given_up=given_up)
            self.changed.notify_all()

    def refresh(self) -> None:
        """Bring the gauges and the residencies up to date; call it holding `changed`."""
        self.stats.running, self.stats.waiting = len(self.running), len(self.queue)
        self.stats.kv_usage = self.cache.held / max(1, self.cache.blocks)
        for residency in self.cache.residencies:
            self.stats.reallocated(residency)
        self.cache.residencies.clear()

    def generate(self, request: Request) -> Generator[int]:
        """Yield the tokens as they come; closing the iterator aborts the request."""
        arrived = time.monotonic()
        allocation, scheduled = self._prefill(request.prompt, request)
        try:
            self._pause(request.slow_by)
            first = time.monotonic()
            with self.changed:
                self.stats.first_token(len(request.prompt), request.cached_tokens, first - arrived)
            previous = None
            for token in request.answer:
                if previous is not None:
                    allocation = self._decode(allocation, previous, request)
                self.stats.counts["generated"] += 1
                yield token
                previous = token
            times = {"queue": scheduled - arrived, "prefill": first - scheduled, "e2e": time.monotonic() - arrived}
            with self.changed:
                for name, seconds in times.items():
                    self.stats.histograms[name].observe(seconds)
        finally:
            self._leave(allocation)

    def _prefill(self, tokens: Sequence[int], request: Request, *, resumed: bool = False) -> tuple[Allocation, float]:
        """Wait for a turn and for blocks, then compute what is not cached; return the blocks and the turn's start."""
        with self.changed:
            (self.queue.appendleft if resumed else self.queue.append)(request)
            try:
                while (
                    self._prefilling
                    or self.queue[0] is not request
                    or not (allocation := self.cache.admit(tokens, request.extra, read=request.read))
                ):
                    self.changed.wait()
            finally:
                self.queue.remove(request)
            self._prefilling = True
            self.running.add(allocation)
            if not resumed:
                request.cached_tokens = allocation.cached_tokens
                if request.read and self.settings.prefix_caching:
                    self.stats.looked_up(len(tokens), allocation.cached_tokens)
            self.refresh()
        scheduled = time.monotonic()
        uncached = len(tokens) - allocation.cached_tokens
        self._pause(self.settings.base_ms / 1e3 + uncached * self.settings.prefill_us_per_token / 1e6)
        with self.changed:
            self._prefilling = False
            self.changed.notify_all()
        return allocation, scheduled

    def _decode(self, allocation: Allocation, token: int, request: Request) -> Allocation:
        with self.changed:
            fits = allocation.cache.append(allocation, token)
        if not fits:
            with self.changed:
                self.stats.counts["preemptions"] += 1
            self._leave(allocation)
            allocation, _ = self._prefill([*allocation.tokens, token], request, resumed=True)
        self._pause(self.settings.decode_ms / 1e3)
        return allocation

    def _leave(self, allocation: Allocation) -> None:
        with self.changed:
            allocation.cache.release(allocation)
            self.running.discard(allocation)
            self.changed.notify_all()


class Engine:
    """The ranks behind one server, and the faults that are on. `run` serves until `close`."""

    def __init__(self, settings: Settings, host: str, port: int) -> None:
        """Bind the address, port 0 for a free one. Raise OSError."""
        self.settings = settings
        self.faults: dict[str, Any] = {}
        self.closing = threading.Event()
        self.changed = threading.Condition()
        self._turn = 0
        self._down_for = 0.0
        self._frozen = ""
        self._start()
        self._server = Server((host, port), self)
        self.host, self.port = host, self._server.server_port

    @property
    def url(self) -> str:
        """The base URL, without /v1."""
        return f"http://{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"  # noqa: S104

    def run(self) -> None:
        """Accept connections; after a restart, on a new socket."""
        while not self.closing.is_set():
            self._server.handle_request()
            if self._server.down.is_set():
                self._server.server_close()
                self.pause(self._down_for)
                self._server = Server((self.host, self.port), self)
        self._server.server_close()

    def close(self) -> None:
        """Let `run` and whatever waits in a request return."""
        self.closing.set()
        self.switch({"wedge": None})

    def pause(self, seconds: float) -> None:
        """Sleep, though not beyond `close`."""
        if seconds:
            self.closing.wait(seconds)

    def switch(self, values: Mapping[str, object]) -> None:
        """Set faults; None switches off. Raise ValueError, having changed nothing."""
        checked = checked_faults(values)
        if checked.get("dead"):
            self._frozen = self.metrics()
        restart = checked.pop("restart", None)
        with self.changed:
            active = self.faults | checked
            self.faults = {name: value for name, value in active.items() if value is not None}
            self.changed.notify_all()
        if restart is not None:
            self._down_for = restart
            self._start()
            self._server.down.set()
        elif self._configured() != self.ranks[0].settings:
            for rank in self.ranks:
                rank.configure(self._configured())

    def hold(self, fault: str) -> None:
        """Return once the fault is off."""
        with self.changed:
            self.changed.wait_for(lambda: fault not in self.faults)

    def rank_for(self, header: str | None) -> Rank:
        """Return the rank that the header names, else the least loaded. Raise RefusedError."""
        if header and re.fullmatch(r"-?\d+", header):
            if not 0 <= int(header) < len(self.ranks):
                message = f"data_parallel_rank {header} is out of range [0, {len(self.ranks)})."
                raise RefusedError(failure(400, message))
            return self.ranks[int(header)]
        self._turn += 1  # ties go round
        start = self._turn % len(self.ranks)
        return min(self.ranks[start:] + self.ranks[:start], key=lambda rank: rank.load)

    def reset_prefix_cache(self) -> bool:
        """Empty the caches; False if one of them is in use."""
        done = []
        for rank in self.ranks:
            with rank.changed:
                done.append(rank.cache.reset())
        return all(done)

    def metrics(self) -> str:
        """Return the exposition."""
        if "dead" in self.faults:
            return self._frozen
        text = process_text(self.started, dict(self.requests))
        if "no_metrics" in self.faults:
            return text
        hidden = {self.faults.get("rename", "")} | (RESIDENCY_FIELDS if "no_kv_metrics" in self.faults else set())
        with ExitStack() as locks:
            for rank in self.ranks:
                locks.enter_context(rank.changed)
                rank.refresh()
            stats = [rank.stats for rank in self.ranks]
            return text + engine_text(stats[0].configuration, stats, self.started, hidden)

    def _start(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.ranks = [Rank(self._configured(), self.pause) for _ in range(self.settings.ranks)]

    def _configured(self) -> Settings:
        return replace(
            self.settings,
            prefix_caching=self.settings.prefix_caching and "apc_off" not in self.faults,
            speculative="spec_decode" in self.faults,
            blocks=self.faults.get("blocks", self.settings.blocks),
            block_size=self.faults.get("block_size", self.settings.block_size),
        )


# --- The OpenAI protocol ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer; a body that is not text goes out as JSON."""

    status: int = 200
    body: Any = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """The request gets this answer instead of the one that it asked for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


def failure(status: int, message: str, param: str | None = None, **headers: str) -> Answer:
    """Return an error in vLLM's shape."""
    kind = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}.get(status, "InternalServerError")
    return Answer(status, {"error": {"message": message, "type": kind, "param": param, "code": status}}, headers)


LOGIN_PAGE: Final = Answer(200, "<!doctype html><title>Sign in</title>\n", {"Content-Type": "text/html"})
V1_REFUSALS: Final = {
    "unauthorized": Answer(401, {"error": "Unauthorized"}),
    "not_found": Answer(404, {"detail": "Not Found"}),
    "login_page": Answer(302, headers={"Location": "/login"}),
}
COMPLETION_REFUSALS: Final = {
    "dead": failure(500, "EngineCore encountered an issue. See stack trace (above) for the root cause."),
    "server_error": failure(500, "Internal server error"),
    "rate_limited": failure(429, "Too many requests", **{"Retry-After": "2"}),
    "error_in_200": replace(failure(429, "daily quota exceeded"), status=200),
}


def encode(text: str) -> list[int]:
    """Return the tokens of a text: a special marker is one, every other byte of its UTF-8 is one."""
    parts = re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text)
    return [token for part in parts for token in ([SPECIALS[part]] if part in SPECIALS else part.encode())]


def render_chat(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the messages as ChatML that ends where the assistant is to go on."""
    written = "".join(f"<|im_start|>{message['role']}\n{_content(message)}<|im_end|>\n" for message in messages)
    return written + "<|im_start|>assistant\n"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


class Call:
    """One call of a completions endpoint, and the faults that it met."""

    def __init__(self, body: Mapping[str, Any], *, chat: bool, settings: Settings, faults: Mapping[str, Any]) -> None:
        """Read a request's body. Raise AttributeError, KeyError, TypeError or ValueError if that cannot be done."""
        self.chat, self.settings, self.faults = chat, settings, faults
        prompts = [encode(render_chat(body["messages"]))] if chat else _prompts(body["prompt"])
        self.longest = max(map(len, prompts))
        self.prompt_tokens = sum(map(len, prompts))
        self.prompts = [prompt for prompt in prompts for _ in range(int(body.get("n") or 1))]
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        self.limit = int(limit or (settings.capacity - self.longest if chat else 16))
        self.at_least = self.limit if body.get("ignore_eos") else int(body.get("min_tokens") or 0)
        self.extra = (str(body.get("cache_salt") or ""),)
        unread = body.get("prompt_logprobs") is not None or (body.get("echo") and body.get("logprobs") is not None)
        self.read = not unread and "lookup_skipped" not in faults
        options = body.get("stream_options") or {}
        self.stream = bool(body.get("stream"))
        self.usage = "no_usage" not in faults and bool(options.get("include_usage") or not self.stream)
        self.continuous_usage = self.usage and bool(options.get("continuous_usage_stats"))
        self.model = body.get("model") or settings.model
        kind = ("chat.completion.chunk" if self.stream else "chat.completion") if chat else "text_completion"
        name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.common = {"id": name, "object": kind, "created": int(time.time()), "model": self.model}

    def check(self) -> None:
        """Raise RefusedError for another model or too many tokens."""
        if self.model != self.settings.model:
            raise RefusedError(failure(404, f"The model `{self.model}` does not exist.", "model"))
        if self.longest + max(1, self.limit) > self.settings.capacity:
            message = (
                f"This model's maximum context length is {self.settings.capacity} tokens. However, you requested "
                f"{self.limit} output tokens and your prompt contains {self.longest} input tokens."
            )
            raise RefusedError(failure(400, message, "input_tokens"))

    def answer_to(self, prompt: Sequence[int]) -> Iterator[int]:
        """Return the tokens of one answer, with the end marker where there is room for it."""
        sentence = SENTENCES[sum(prompt) % len(SENTENCES)]
        return islice(chain(sentence * max(1, -(-self.at_least // len(sentence))), [END]), self.limit)

    def details(self, cached_tokens: int) -> dict[str, Any]:
        """Return `prompt_tokens_details` as this version and these flags give it; a stream leaves out a null."""
        settings = self.settings
        told = settings.prompt_tokens_details and settings.dialect is not Dialect.VLLM_V0
        if told and (cached_tokens or settings.version >= (0, 24)) and "null_details" not in self.faults:
            return {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
        return {} if self.stream and "null_details" not in self.faults else {"prompt_tokens_details": None}


def _prompts(prompt: Any) -> list[list[int]]:  # noqa: ANN401 - JSON
    """Return the prompts of /v1/completions: a text, token ids, or a list of either."""
    several = isinstance(prompt, list) and not isinstance(prompt[0], int)
    tokens = [encode(one) if isinstance(one, str) else list(map(int, one)) for one in (prompt if several else [prompt])]
    if not tokens or not all(tokens):
        raise ValueError("a prompt is empty")
    return tokens


@dataclass(frozen=True)
class Step:
    """One token of one of a call's answers."""

    index: int
    produced: int  # tokens of this answer so far
    text: str
    finish_reason: str | None
    request: Request


def steps_of(call: Call, engine: Engine, rank: str | None) -> Generator[Step]:
    """Generate the answers one after the other, each on the rank that is named or the least loaded."""
    for index, prompt in enumerate(call.prompts):
        slow_by = call.faults.get("slow_first_token", 0.0)
        request = Request(prompt, call.extra, call.read, call.answer_to(prompt), slow_by)
        with closing(engine.rank_for(rank).generate(request)) as tokens:
            for produced, token in enumerate(tokens, 1):
                text, reason = ("", "stop") if token == END else (chr(token), None)
                yield Step(index, produced, text, "length" if produced == call.limit else reason, request)


def whole(call: Call, steps: Iterator[Step]) -> dict[str, Any]:
    """Return the answer to a call without a stream."""
    taken = list(steps)
    choices = []
    for end in (step for step in taken if step.finish_reason):
        text = "".join(step.text for step in taken if step.index == end.index)
        content = {"message": {"role": "assistant", "content": text}} if call.chat else {"text": text}
        choices.append(_choice(end.index, content, end.finish_reason))
    usage = _usage(call.prompt_tokens, len(taken)) | call.details(taken[-1].request.cached_tokens)
    return call.common | {"choices": choices} | ({"usage": usage} if call.usage else {})


def chunks(call: Call, steps: Iterator[Step]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream as the tokens come. Raise ConnectionAbortedError where it is to break off."""
    produced, cached_tokens = 0, 0
    for step in steps:
        if not produced:
            cached_tokens = step.request.cached_tokens
        produced += 1
        now = {"usage": _usage(len(step.request.prompt), step.produced)} if call.continuous_usage else {}
        if call.chat and step.produced == 1:
            start = {"usage": _usage(len(step.request.prompt), 0)} if call.continuous_usage else {}
            opening = {"delta": {"role": "assistant", "content": ""}}
            yield call.common | {"choices": [_choice(step.index, opening, None)]} | start
        content = {"delta": {"content": step.text}} if call.chat else {"text": step.text}
        yield call.common | {"choices": [_choice(step.index, content, step.finish_reason)]} | now
        if "truncated_stream" in call.faults:
            raise ConnectionAbortedError
    if call.usage:
        usage = _usage(call.prompt_tokens, produced) | call.details(cached_tokens)
        yield call.common | {"choices": [], "usage": usage}


def _choice(index: int, content: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": reason}


def _usage(prompt_tokens: int, produced: int) -> dict[str, Any]:
    total = prompt_tokens + produced
    return {"prompt_tokens": prompt_tokens, "total_tokens": total, "completion_tokens": produced}


# --- HTTP -------------------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """One listening socket of an engine; `down` once the engine has restarted."""

    request_queue_size = 128
    timeout = 0.05  # seconds until a restart or an end is noticed

    def __init__(self, address: tuple[str, int], engine: Engine) -> None:
        super().__init__(address, Handler)
        self.engine = engine
        self.down = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as inherited
        """Say nothing of clients that went away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """The endpoints. An answer goes out in one write, a stream in one for each chunk."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "uvicorn", ""
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Server

    def do_GET(self) -> None:
        """Answer a request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        try:
            self._check_alive()
            answer = self._routed(path, body)
            if answer:
                self._send(answer)
        except RefusedError as error:
            answer = error.answer
            self._send(answer)
        except ConnectionError:
            self.close_connection = True
            return
        status = f"{(answer.status if answer else 200) // 100}xx"
        self.server.engine.requests[self.command, path if self._known(path) else "none", status] += 1

    do_POST = do_GET  # noqa: N815 - as inherited

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _known(self, path: str) -> bool:
        return any(path == known for _, known in ROUTES)

    def _check_alive(self) -> None:
        if self.server.down.is_set():
            raise ConnectionAbortedError

    def _refuse_if(self, refusals: Mapping[str, Answer]) -> None:
        for name, answer in refusals.items():
            if name in self.server.engine.faults:
                raise RefusedError(answer)

    def _routed(self, path: str, body: bytes) -> Answer | None:
        engine = self.server.engine
        if path.startswith("/v1/"):
            self._refuse_if(V1_REFUSALS)
            key = engine.settings.api_key
            if key and self.headers.get("Authorization") != f"Bearer {key}":
                raise RefusedError(V1_REFUSALS["unauthorized"])
        route = ROUTES.get((self.command, path))
        if not route:
            known = self._known(path)
            raise RefusedError(Answer(405, {"detail": "Method Not Allowed"}) if known else V1_REFUSALS["not_found"])
        return route(self, body)

    def _send(self, answer: Answer) -> None:
        text = isinstance(answer.body, str)
        body = (answer.body if text else _json(answer.body)).encode()
        self.send_response(answer.status)
        kind = "text/plain; charset=utf-8" if text else "application/json"
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **answer.headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def complete(self, body: bytes) -> Answer | None:
        """Answer a call of a completions endpoint."""
        engine = self.server.engine
        self._refuse_if(COMPLETION_REFUSALS)
        if "wedge" in engine.faults:
            engine.hold("wedge")
            raise ConnectionAbortedError
        chat = "chat" in self.path
        try:
            call = Call(json.loads(body), chat=chat, settings=engine.ranks[0].settings, faults=engine.faults)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return failure(400, f"The request cannot be read: {error!r}")
        call.check()
        rank = self.headers.get("X-data-parallel-rank")
        engine.rank_for(rank)  # refuses before anything is sent
        with closing(steps_of(call, engine, rank)) as steps:
            if not call.stream:
                return Answer(body=whole(call, steps))
            events = (f"data: {_json(chunk)}\n\n" for chunk in chunks(call, steps))
            self._stream(["".join(events)] if "buffered" in call.faults else events)
        return None

    def _stream(self, events: Iterable[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in chain(events, ["data: [DONE]\n\n"]):
            self._check_alive()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event.encode()), event.encode()))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def metrics(self, _: bytes) -> Answer:
        """Answer a scrape."""
        engine = self.server.engine
        engine.pause(engine.faults.get("slow_metrics", 0.0))
        self._refuse_if(METRICS_REFUSALS)
        return Answer(body=engine.metrics(), headers={"Content-Type": CONTENT_TYPE})

    def models(self, _: bytes) -> Answer:
        """List the one model."""
        settings = self.server.engine.ranks[0].settings
        model = {"id": settings.model, "object": "model", "created": int(time.time()), "owned_by": "vllm"}
        return Answer(body={"object": "list", "data": [model | {"max_model_len": settings.capacity}]})

    def health(self, _: bytes) -> Answer:
        """Say whether the engine core lives."""
        return Answer(503 if "dead" in self.server.engine.faults else 200)

    def version(self, _: bytes) -> Answer:
        """Say what is simulated."""
        return Answer(body={"version": ".".join(map(str, self.server.engine.settings.version))})

    def login(self, _: bytes) -> Answer:
        """Show the page of the `login_page` fault."""
        return LOGIN_PAGE

    def reset_prefix_cache(self, _: bytes) -> Answer:
        """Empty the caches; old versions do not say whether that worked."""
        done = self.server.engine.reset_prefix_cache()
        return Answer(body={"success": done} if self.server.engine.settings.version >= (0, 28) else "")

    def show_faults(self, _: bytes) -> Answer:
        """List the faults."""
        known = {name: meaning for name, (_, meaning) in FAULTS.items()}
        return Answer(body={"active": self.server.engine.faults, "known": known})

    def switch_faults(self, body: bytes) -> Answer:
        """Set faults from a JSON object."""
        try:
            self.server.engine.switch(dict(json.loads(body)))
        except (TypeError, ValueError) as error:
            return failure(400, str(error))
        return self.show_faults(body)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


METRICS_REFUSALS: Final = {
    "empty_metrics": Answer(),
    "metrics_500": Answer(500, "Internal Server Error"),
    "metrics_html": LOGIN_PAGE,
}
ROUTES: Final[Mapping[tuple[str, str], Callable[[Handler, bytes], Answer | None]]] = {
    ("POST", "/v1/chat/completions"): Handler.complete,
    ("POST", "/v1/completions"): Handler.complete,
    ("GET", "/v1/models"): Handler.models,
    ("GET", "/health"): Handler.health,
    ("GET", "/version"): Handler.version,
    ("GET", "/metrics"): Handler.metrics,
    ("GET", "/login"): Handler.login,
    ("POST", "/reset_prefix_cache"): Handler.reset_prefix_cache,
    ("GET", "/demo/faults"): Handler.show_faults,
    ("POST", "/demo/faults"): Handler.switch_faults,
}


@contextmanager
def serving(
    settings: Settings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    faults: Mapping[str, object] | None = None,
) -> Iterator[Engine]:
    """Serve in a thread of its own and yield the engine, whose `url` is the base URL. Raise OSError, ValueError."""
    engine = Engine(settings or Settings(), host, port)
    engine.switch(faults or {})
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        engine.close()
        thread.join()


# --- The command line -------------------------------------------------------------------------------------------

DIALECTS: Final = {"v1": Dialect.VLLM_V1, "v0": Dialect.VLLM_V0, "sglang": Dialect.SGLANG}
DEFAULT_VERSIONS: Final = {Dialect.VLLM_V0: (0, 8, 5)}


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.engine", description="A simulated vLLM.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000, help="0 for a free one")
    parser.add_argument("--api-key")
    parser.add_argument("--dialect", choices=DIALECTS, default="v1")
    parser.add_argument("--version", type=_version, help="whose /metrics to imitate; 0.32.0, with v0 0.8.5")
    for name in ("model", "block_size", "blocks", "ranks", "prefill_us_per_token", "base_ms", "decode_ms"):
        default = getattr(Settings, name)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, help="default %(default)s")
    for name in ("prefix_caching", "prompt_tokens_details"):
        parser.add_argument(f"--no-{name.replace('_', '-')}", dest=name, action="store_false")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE]", help=", ".join(FAULTS))
    return parser


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status, 3 if that cannot start."""
    options = vars(_parser().parse_args(argv))
    options["dialect"] = DIALECTS[options["dialect"]]
    options["version"] = options["version"] or DEFAULT_VERSIONS.get(options["dialect"], Settings.version)
    settings = Settings(**{known.name: options[known.name] for known in fields(Settings) if known.name in options})
    faults = {name: value or True for name, _, value in (fault.partition("=") for fault in options["fault"])}
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with serving(settings, host=options["host"], port=options["port"], faults=faults) as engine:
            print(f"demo.engine: {settings.model} on {engine.url}, faults under /demo/faults", flush=True)
            stop.wait()
    except (OSError, ValueError) as error:
        print(f"demo.engine: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
