"""The HTTP side of the simulated engine: its endpoints, and the answers that faults put in their place."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from demo.exposition import CONTENT_TYPE
from demo.faults import FAULTS
from demo.protocol import (
    COMPLETION_REFUSALS,
    LOGIN_PAGE,
    V1_REFUSALS,
    Answer,
    Call,
    RefusedError,
    chunks,
    failure,
    steps_of,
    whole,
)

if TYPE_CHECKING:
    from demo.engine import Engine


class Server(ThreadingHTTPServer):
    """One listening socket of an engine; `down` once the engine has restarted."""

    request_queue_size = 128
    timeout = 0.01  # seconds until a restart or an end is noticed

    def __init__(self, address: tuple[str, int], engine: "Engine") -> None:
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
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            return failure(400, f"The request cannot be read: {error!r}")
        call.check()
        choose = engine.chooser(self.headers.get("X-data-parallel-rank"))
        with closing(steps_of(call, choose)) as steps:
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
