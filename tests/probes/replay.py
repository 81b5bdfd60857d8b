"""A server on loopback that replays canned HTTP answers, such as those of the case files, and who asks it."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from probes.client import Client, Endpoint, Request, Result
from probes.outcome import ErrorClass

KEY = "sk-demo-0000-abcdefgh"
REQUEST = Request(({"role": "user", "content": "hello"},), max_tokens=8)
EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `pieces` are written at their milliseconds after the request.

    With `status` 0 no headers are sent and the pieces go out as they are. `ending`: "end" the body properly, "abort"
    the connection, or "hold" it open in silence.
    """

    pieces: Iterable[tuple[float, str]] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: EVENT_STREAM)
    ending: str = "end"


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


def whole(data: Mapping[str, Any]) -> Answer:
    """Return the answer that a case file with `status` describes."""
    return Answer([(0, data["body"])] if data.get("body") else (), data["status"], data.get("headers", JSON))


def of_file(path: Path) -> Answer:
    """Return the answer that a case file holds."""
    if path.suffix == ".json":
        return whole(json.loads(path.read_text(encoding="utf-8")))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    response = json.loads((path.parent / "response.json").read_text(encoding="utf-8"))
    return Answer([(line["at_ms"], line["raw"]) for line in lines], response["status"], response["headers"])


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **fields: Any) -> str:
    """Return one event of a chat stream; without a delta, one without choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': choices, **fields})}\n\n"


def counted(completion_tokens: int, **details: Any) -> dict[str, Any]:
    """Return a usage."""
    return {"prompt_tokens": 9, "completion_tokens": completion_tokens, **details}


def streamed(*events: str, spacing_ms: float = 30) -> Answer:
    """Return an answer of events that come one after the other."""
    return Answer([(i * spacing_ms, event) for i, event in enumerate(events)])


ROLE = chunk({"role": "assistant", "content": ""})
PING = ": ping\n\n"
DONE = "data: [DONE]\n\n"
SILENCE = Answer(status=0, ending="hold")
MODELS = whole(
    {"status": 200, "body": json.dumps({"object": "list", "data": [{"id": "demo-7b"}, {"id": "demo-lora"}]})}
)
OK = Answer([(0, ROLE), (1, chunk({"content": "ok"}, "stop")), (1, DONE)])


class Replay(ThreadingHTTPServer):
    """Answers the models with `models` and all else with `answer`; remembers what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Callable[[], Answer], models: Answer, tls: ssl.SSLContext | None, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.answer, self.models = answer, models
        self.scheme = "https" if tls else "http"
        self.closing = threading.Event()
        self.seen: list[Seen] = []
        self.accepted: list[socket.socket] = []

    @property
    def url(self) -> str:
        """The base URL, without /v1."""
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    @property
    def chats(self) -> list[Seen]:
        """The requests for chat completions."""
        return [seen for seen in self.seen if seen.path == "/v1/chat/completions"]

    @property
    def connections(self) -> int:
        """How many it has accepted."""
        return len(self.accepted)

    def get_request(self) -> Any:
        """Remember the connection."""
        connection, address = super().get_request()
        self.accepted.append(connection)
        return connection, address

    def stop(self) -> None:
        """Close everything, as a process that ends."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        for connection in self.accepted:
            with suppress(OSError):  # most have ended by themselves
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Replay

    def do_GET(self) -> None:
        began = time.monotonic()
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers, json.loads(raw) if raw else None)
        self.server.seen.append(seen)
        answer = self.server.models if self.path == "/v1/models" else self.server.answer()
        framed = bool(answer.status)
        if framed:
            self.send_response(answer.status)
            for name, value in {**answer.headers, "transfer-encoding": "chunked"}.items():
                self.send_header(name, value)
            self.end_headers()
        for at_ms, text in answer.pieces:
            self.server.closing.wait(max(0.0, began + at_ms / 1000 - time.monotonic()))
            if self.server.closing.is_set():
                break
            piece = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if framed else piece)
        if answer.ending == "hold":
            self.server.closing.wait()
        if answer.ending == "end" and framed:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    do_POST = do_GET  # noqa: N815 - as inherited

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def replaying(
    *answers: Answer, models: Answer = MODELS, tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[Replay]:
    """Serve the answers in turn, the last one for ever; port 0 is a free one."""
    queue = list(answers)

    def answer() -> Answer:
        return queue.pop(0) if len(queue) > 1 else queue[0]

    server = Replay(answer, models, tls, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


@contextmanager
def client_of(url: str, key: str = KEY, model: str = "demo-7b", ca_file: str = "", **options: Any) -> Iterator[Client]:
    """Yield a client of that server."""
    with closing(Client(Endpoint(url, key, model, ca_file), **options)) as client:
        yield client


def ask(*answers: Answer, request: Request = REQUEST, **options: Any) -> Result:
    """Return what comes of the request to a server that answers so."""
    with replaying(*answers) as server, client_of(server.url, **options) as client:
        return client.send(request)


def failed(result: Result) -> ErrorClass:
    """Return the class of the failure that the result must be."""
    assert result.failure, result
    assert result.ttft is None
    return result.failure.error_class


def closed_meanwhile(client: Client, work: Callable[[], None], begun: Callable[[], object]) -> float:
    """Close the client while another thread does the work with it; return the seconds until that has ended."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while not begun():
        time.sleep(0.01)
    time.sleep(0.1)
    began = time.monotonic()
    client.close()
    thread.join(5)
    return time.monotonic() - began
