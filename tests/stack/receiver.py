"""A webhook that Alertmanager notifies, for tests: which alerts began and ended, and when."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Notice:
    """What the receiver was told, when (monotonic seconds), and by which sender."""

    at: float
    sender: str
    status: str  # firing or resolved
    alert: str
    target: str  # empty where it is about the stack


class Receiver:
    """A webhook, and all that it was told; the path of its address is the sender."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.notices: list[Notice] = []
        self._last: dict[tuple[str, str, str], str] = {}
        self._heard = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()
                receiver._hear(self.path.strip("/"), told["alerts"])

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, sender: str) -> str:
        """Return its address for a sender."""
        return f"http://{self._server.server_address[0]!s}:{self._server.server_port}/{sender}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _hear(self, sender: str, alerts: Sequence[Mapping[str, Any]]) -> None:
        with self._heard:
            for alert in alerts:
                labels = alert["labels"]
                of = (sender, labels["alertname"], labels.get("target", ""))
                if self._last.get(of, "resolved") != alert["status"]:  # a group is told again whole when it changes
                    self._last[of] = alert["status"]
                    self.notices.append(Notice(time.monotonic(), sender, alert["status"], *of[1:]))
            self._heard.notify_all()

    def await_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds after a notice; False at the deadline."""
        with self._heard:
            return self._heard.wait_for(condition, max(0.0, seconds))
