"""A loopback server that answers as it is told, byte by byte, also in ways that no HTTP library would."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

TLS_RECORD = b"\x16"
Answer = Callable[[socket.socket, str], None]


def reply(body: bytes | str = b"", status: str = "200 OK", **headers: str) -> bytes:
    """Return a whole HTTP answer with its length."""
    body = body.encode() if isinstance(body, str) else body
    fields = {"Content-Type": "text/plain; version=0.0.4", "Content-Length": str(len(body)), "Connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


class Server:
    """Its address, and the requests that it has seen, as text."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[str] = []
        self.closing = threading.Event()


@contextmanager
def serving(answer: Answer | bytes, port: int = 0) -> Iterator[Server]:
    """Serve on a port, 0 for a free one: fixed bytes, or a function of the connection and the request's text."""
    listener = socket.create_server(("127.0.0.1", port))
    server = Server(listener.getsockname()[1])

    def handle(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request and not request.startswith(TLS_RECORD):
                received = connection.recv(65_536)
                if not received:
                    return
                request += received
            text = request.decode(errors="replace")
            server.requests.append(text)
            if isinstance(answer, bytes):
                connection.sendall(answer)
            else:
                answer(connection, text)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=handle, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        server.closing.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def free_port() -> int:
    """Return a port that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
