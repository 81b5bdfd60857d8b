import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count

import pytest

from probes.client import Failed, Result
from probes.outcome import ErrorClass
from tests.probes.replay import (
    DONE,
    OK,
    PING,
    REQUEST,
    ROLE,
    SILENCE,
    Answer,
    chunk,
    client_of,
    closed_meanwhile,
    failed,
    replaying,
)
from tests.sockets import free_port, serving


def dribble(text: str, every_ms: float = 20) -> Iterator[tuple[float, str]]:
    return ((i * every_ms, text) for i in count())


HEADERS = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LATE_TOKEN = Answer([(0, ROLE), (3000, chunk({"content": "ok"}, "stop")), (3000, DONE)])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (SILENCE, ErrorClass.TIMEOUT_FIRST_TOKEN),
        (Answer([(0, ROLE)], ending="hold"), ErrorClass.TIMEOUT_FIRST_TOKEN),
        (LATE_TOKEN, ErrorClass.TIMEOUT_FIRST_TOKEN),
        (Answer(dribble(PING)), ErrorClass.TIMEOUT_FIRST_TOKEN),
        (Answer(dribble("H"), status=0), ErrorClass.TIMEOUT_FIRST_TOKEN),
        (Answer(dribble("x"), status=500), ErrorClass.TIMEOUT_FIRST_TOKEN),
        (Answer([(0, f"{HEADERS}1;"), *((i * 20, "x") for i in range(500))], status=0), ErrorClass.TIMEOUT_FIRST_TOKEN),
        (Answer(dribble(chunk({"content": "a"}))), ErrorClass.TIMEOUT_TOTAL),
        (Answer([(0, chunk({"content": "a"}))], ending="hold"), ErrorClass.TIMEOUT_TOTAL),
        (Answer([(0, chunk({"content": "a"})), *((i * 20, PING) for i in range(500))]), ErrorClass.TIMEOUT_TOTAL),
    ],
)
def test_no_server_holds_it_past_a_deadline(answer: Answer, expected: ErrorClass) -> None:
    limit = 0.4 if expected is ErrorClass.TIMEOUT_FIRST_TOKEN else 0.8
    with replaying(answer, OK) as server, client_of(server.url, first_token_timeout=0.4, total_timeout=0.8) as client:
        client.models()
        began = time.monotonic()
        result = client.send(REQUEST)
        assert limit - 0.05 <= time.monotonic() - began <= limit + 0.5
        assert failed(result) is expected
        assert client.send(REQUEST).failure is None  # on a new connection


def test_a_server_that_accepts_no_connection_has_its_class() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, closing(socket.socket()) as first:
        port = full.getsockname()[1]
        first.connect(("127.0.0.1", port))
        with closing(socket.socket()) as second, client_of(f"http://127.0.0.1:{port}", connect_timeout=0.3) as client:
            second.setblocking(False)
            with suppress(BlockingIOError):
                second.connect(("127.0.0.1", port))
            assert failed(client.send(REQUEST)) is ErrorClass.TIMEOUT_CONNECT


def test_several_clients_work_at_once() -> None:
    results: list[Result] = []
    with replaying(Answer([(300, ROLE), (300, chunk({"content": "ok"}, "stop")), (301, DONE)])) as server:

        def work() -> None:
            with client_of(server.url) as client:
                results.extend(client.send(REQUEST) for _ in range(2))

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 10
    assert all(result.ttft is not None and 0.29 <= result.ttft <= 0.8 for result in results)


def test_a_restarted_server_is_found_again() -> None:
    port = free_port()
    with client_of(f"http://127.0.0.1:{port}") as client:
        assert failed(client.send(REQUEST)) is ErrorClass.CONNECTION_REFUSED
        for _ in range(2):
            with replaying(OK, port=port):
                assert client.send(REQUEST).failure is None


# --- Closing from another thread --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        SILENCE,
        Answer([(0, ROLE)], ending="hold"),
        Answer([(0, chunk({"content": "a"}))], ending="hold"),
        Answer(dribble(PING)),
        Answer([(0, "{")], status=500, ending="hold"),
    ],
)
def test_closing_ends_a_request_at_once(answer: Answer) -> None:
    results: list[Result] = []
    with replaying(answer) as server, client_of(server.url) as client:
        took = closed_meanwhile(client, lambda: results.append(client.send(REQUEST)), lambda: server.chats)
        assert took < 0.5
        assert failed(results[0]) is ErrorClass.NETWORK
        assert results[0].failure
        assert "told to end" in results[0].failure.message


@pytest.mark.parametrize("model", ["", "demo-7b"])
def test_closing_ends_the_listing_of_models_at_once_and_nothing_follows(model: str) -> None:
    results: list[Result] = []
    with replaying(OK, models=SILENCE) as server, client_of(server.url, model=model) as client:

        def work() -> None:
            with suppress(Failed):
                client.models()
            results.append(client.send(REQUEST))

        assert closed_meanwhile(client, work, lambda: server.seen) < 0.5
        assert failed(results[0]) is ErrorClass.NETWORK
        assert server.chats == []


def test_a_closed_client_connects_no_more() -> None:
    with replaying(OK) as server, client_of(server.url) as client:
        assert client.send(REQUEST).failure is None
        client.close()
        assert failed(client.send(REQUEST)) is ErrorClass.NETWORK
        with pytest.raises(Failed, match="told to end"):
            client.models()
        client.close()
        assert server.connections == 1


def test_a_connection_that_is_never_given_back_holds_nobody() -> None:
    """As after a close in the midst of a request; without a bound the next one would wait for ever."""
    asked = threading.Event()

    def hang(connection: socket.socket, _: str) -> None:
        asked.set()
        connection.recv(1)

    with serving(hang) as server, client_of(server.url, connect_timeout=0.3, total_timeout=5) as client:
        transport = client._api._client  # noqa: SLF001 - its only connection
        threading.Thread(target=transport.get, args=(f"{server.url}/held",), daemon=True).start()
        assert asked.wait(5)
        began = time.monotonic()
        assert failed(client.send(REQUEST)) is ErrorClass.TIMEOUT_CONNECT
        assert time.monotonic() - began < 2
