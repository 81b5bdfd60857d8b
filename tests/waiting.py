"""Waiting for a condition, and ports that nothing listens on."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until the condition holds; fail at the deadline."""
    deadline, never = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the deadline passed"
        never.wait(0.05)


def free_ports(count: int) -> list[str]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(server.getsockname()[1]) for server in sockets]
