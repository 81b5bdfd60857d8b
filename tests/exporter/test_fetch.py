"""Every way in which a scrape can fail has its reason, and the exporter still answers."""

import itertools
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.collector import Collector
from exporter.config import Settings, Target
from exporter.fetch import Client
from exporter.read import read
from exporter.scrape import Reason, Scrape
from exporter.snapshot import Snapshot
from tests.inputs import CASES, NEWEST
from tests.sockets import free_port, reply, serving

BODY = NEWEST.read_bytes()
SECRET = "sk-demo-0000"


def scrape(url: str, timeout: float = 2.0, size: int = 2**20, **target: Any) -> Scrape:
    """Scrape one target once."""
    settings = Settings((Target("t", url, f"{url}/metrics", **target),), "127.0.0.1", 0, timeout, size)
    collector = Collector(settings)
    try:
        return collector.scrape()[0]
    finally:
        collector.close()


def chunks(*parts: bytes, head: bytes = b"") -> Callable[[socket.socket, str], None]:
    def answer(connection: socket.socket, _: str) -> None:
        connection.sendall(head or b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
        for part in parts:
            connection.sendall(part)

    return answer


def reset(connection: socket.socket, _: str) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


ANSWERS = {
    "whole": (reply(BODY), None),
    "without a length": (chunks(BODY), None),
    "in chunks": (
        chunks(
            b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
            head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        ),
        None,
    ),
    "204": (reply(status="204 No Content"), Reason.EMPTY_BODY),
    "206": (reply(BODY, status="206 Partial Content"), Reason.TRUNCATED),
    "301 to nowhere": (reply(status="301 Moved Permanently"), Reason.REDIRECT),
    "304": (reply(status="304 Not Modified"), Reason.REDIRECT),
    "401": (reply(status="401 Unauthorized"), Reason.AUTH),
    "403": (reply(status="403 Forbidden"), Reason.AUTH),
    "404": (reply("{}", status="404 Not Found"), Reason.HTTP_4XX),
    "500": (reply("Internal Server Error", status="500 Internal Server Error"), Reason.HTTP_5XX),
    "redirect elsewhere": (reply(status="307 Moved", Location="http://other.example/metrics/"), Reason.REDIRECT),
    "redirect without end": (reply(status="307 Moved", Location="/metrics/"), Reason.REDIRECT),
    "redirect to no address": (reply(status="307 Moved", Location="http://[bad"), Reason.REDIRECT),
    "redirect to no port": (reply(status="307 Moved", Location="https://127.0.0.1:port/"), Reason.REDIRECT),
    "html": (reply("<html>sign in</html>", Content_Type="text/html"), Reason.HTML),
    "html that says it is text": (reply(" <!doctype html>"), Reason.HTML),
    "empty": (reply(), Reason.EMPTY_BODY),
    "blank": (reply(" \n\n"), Reason.EMPTY_BODY),
    "another exporter's": (reply("# TYPE python_info gauge\npython_info 1\n"), Reason.NO_ENGINE_SERIES),
    "json": (reply('{"detail":"ok"}\n', Content_Type="application/json"), Reason.NO_ENGINE_SERIES),
    "json without a line feed": (reply('{"detail":"Not Found"}'), Reason.NO_ENGINE_SERIES),
    "a byte order mark": (reply(b"\xef\xbb\xbf" + BODY), None),
    "openmetrics without a line feed": (reply(BODY + b"# EOF"), None),
    "a file without a line feed": (reply(BODY[:-1]), Reason.PARSE_ERROR),
    "brackets without end": (reply("[" * 100_000 + "\n"), Reason.NO_ENGINE_SERIES),
    "cut within a comment": (reply(BODY + b"# TYPE vllm"), Reason.PARSE_ERROR),
    "broken": (reply('vllm:prefix_cache_hits_total{engine="0} 1\n'), Reason.PARSE_ERROR),
    "cut within a line": (reply(BODY[:-7]), Reason.PARSE_ERROR),
    "not utf-8": (reply(b"vllm:num_requests_running 1\n\xff\n"), Reason.PARSE_ERROR),
    "shorter than announced": (reply(BODY, Content_Length=str(len(BODY) + 9)), Reason.TRUNCATED),
    "chunks cut short": (
        chunks(b"ff\r\nvllm", head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Reason.TRUNCATED,
    ),
    "too large": (reply(b"#" * (2**20 + 1)), Reason.TOO_LARGE),
    "reset": (reset, Reason.NETWORK),
    "no http": (b"SSH-2.0-OpenSSH_9.2\r\n", Reason.NETWORK),
}


@pytest.mark.parametrize(("answer", "reason"), ANSWERS.values(), ids=ANSWERS)
def test_answer(answer: Any, reason: Reason | None) -> None:
    with serving(answer) as server:
        found = scrape(server.url)
    assert found.reason is reason
    assert (found.snapshot is None) is (reason is not None)


def test_limits_are_told_as_the_exporters_own() -> None:
    """The probe asks with the same client and fixed limits."""
    with serving(reply(b"#" * (2**20 + 1))) as large, serving(SLOW["silent"]) as slow:
        told = [str(scrape(server.url, timeout=0.3).error) for server in (large, slow)]
    assert told == [
        "too_large: more than 1 MiB: no engine's /metrics? The exporter's limit is APC_EXPORTER_MAX_BODY_MIB",
        "timeout: no complete answer within the time limit; the exporter's is APC_EXPORTER_TIMEOUT",
    ]


def test_refused() -> None:
    found = scrape(f"http://127.0.0.1:{free_port()}")
    assert (found.reason, found.healthy) == (Reason.REFUSED, False)


def test_unknown_name() -> None:
    found = scrape("http://engine.invalid:8000")
    assert (found.reason, found.healthy) == (Reason.DNS, None)


def test_tls_where_none_is_spoken() -> None:
    with serving(reply(BODY)) as server:
        assert scrape(server.url.replace("http", "https")).reason is Reason.TLS


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    subject, names = ["-subj", "/CN=localhost"], ["-addext", "subjectAltName=DNS:localhost"]
    made = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", *subject, *names, *map(str, made)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")

    listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)

    def answer() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except ssl.SSLError:
                continue  # a client that does not trust us
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                connection.sendall(reply(BODY))

    threading.Thread(target=answer, daemon=True).start()
    url = f"https://localhost:{listener.getsockname()[1]}"
    assert scrape(url).reason is Reason.TLS
    assert scrape(url, ca_file=str(tmp_path / "cert.pem")).reason is None
    listener.close()


def dribble(before: bytes, each: bytes) -> Callable[[socket.socket, str], None]:
    """Send a byte now and then for ever, so that no single read times out."""

    def answer(connection: socket.socket, _: str) -> None:
        connection.sendall(before)
        while not threading.Event().wait(0.05):
            connection.sendall(each)

    return answer


SLOW = {
    "silent": dribble(b"", b""),
    "a head without end": dribble(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
    "a body without end": dribble(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"#"),
    "a chunk without end": dribble(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n", b"#"),
}


@pytest.mark.parametrize("answer", SLOW.values(), ids=SLOW)
def test_a_slow_answer_ends_at_the_limit(answer: Callable[[socket.socket, str], None]) -> None:
    with serving(answer) as server:
        started = time.monotonic()
        found = scrape(server.url, timeout=0.5)
    assert (found.reason, found.snapshot) == (Reason.TIMEOUT, None)
    assert time.monotonic() - started < 1.5


def test_one_slow_target_does_not_delay_or_hide_the_others() -> None:
    with serving(SLOW["a head without end"]) as slow, serving(reply(BODY)) as good:
        targets = tuple(Target(name, url, f"{url}/metrics") for name, url in (("a", slow.url), ("b", good.url)))
        collector = Collector(Settings(targets, "127.0.0.1", 0, 0.5, 2**20))
        for _ in range(8):  # a wedged engine does not use up the threads either
            assert [found.reason for found in collector.scrape()] == [Reason.TIMEOUT, None]
        collector.close()


def by_path(**answers: bytes) -> Callable[[socket.socket, str], None]:
    def answer(connection: socket.socket, request: str) -> None:
        connection.sendall(answers.get(request.split()[1].strip("/"), reply(status="404 Not Found")))

    return answer


@pytest.mark.parametrize(
    ("health", "healthy"),
    [
        (reply(), True),
        (reply(status="503 Service Unavailable"), False),
        (reply(status="404 Not Found"), None),
        (reply(status="204 No Content"), None),
        (reply(status="401 Unauthorized"), None),
    ],
)
def test_health_is_told_apart_from_a_live_metrics_page(health: bytes, *, healthy: bool | None) -> None:
    with serving(by_path(metrics=reply(BODY), health=health, version=reply('{"version":"0.32.0"}'))) as server:
        found = scrape(server.url)
    assert (found.reason, found.healthy) == (None, healthy)
    assert found.snapshot
    assert found.snapshot.version == "0.32.0"


def test_an_answer_is_read_once_also_where_no_version_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes] = []

    def counted(body: bytes, *more: str) -> Snapshot:
        bodies.append(body)
        return read(body, *more)

    monkeypatch.setattr("exporter.collector.read", counted)
    with serving(by_path(metrics=reply(BODY), health=reply())) as server:
        assert scrape(server.url).reason is None
    assert len(bodies) == 1


def test_a_fault_of_our_own_in_asking_for_health_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("exporter.collector._Source._healthy", fails)
    with serving(reply(BODY)) as server:
        assert scrape(server.url).reason is Reason.INTERNAL


def test_redirects_that_never_repeat_leave_nothing_behind() -> None:
    numbers = itertools.count()

    def answer(connection: socket.socket, request: str) -> None:
        if request.startswith("GET /metrics "):
            connection.sendall(reply(status="307 Moved", Location=f"/metrics/{next(numbers)}"))
        else:
            connection.sendall(reply(BODY))

    client = Client()
    with serving(answer) as server:
        for _ in range(3):
            client.get(f"{server.url}/metrics", time.monotonic() + 5)
    assert len(client._requests) == 1  # noqa: SLF001  # what it remembers


@pytest.mark.parametrize("version", [b"", b"[]", b"{}", b"<html>", b'{"version": 3}', b"\xff"])
def test_a_strange_version_is_no_version(version: bytes) -> None:
    with serving(by_path(metrics=reply(BODY), health=reply(), version=reply(version))) as server:
        found = scrape(server.url)
    assert found.snapshot
    assert (found.healthy, found.snapshot.version) == (True, ">=0.16")


def test_the_api_key_is_never_sent_and_the_metrics_key_stays_on_its_host() -> None:
    with serving(reply(BODY)) as other:
        elsewhere = reply(status="307 Moved", Location=f"{other.url}/metrics")
        with serving(by_path(metrics=elsewhere, health=reply())) as server:
            found = scrape(server.url, api_key="sk-api", metrics_key=SECRET)
    assert found.error
    assert found.error.detail == f"redirected to {other.url}, another server: set the URL of the engine itself"
    assert other.requests == []
    assert sum(SECRET in request for request in server.requests) == 1
    assert not any("sk-api" in request for request in server.requests)
    assert SECRET not in str(found)


def test_a_redirect_on_the_same_host_is_followed_with_the_key() -> None:
    def answer(connection: socket.socket, request: str) -> None:
        moved = reply(status="307 Moved", Location="/metrics/")
        connection.sendall(moved if request.startswith("GET /metrics ") else reply(BODY))

    with serving(answer) as server:
        assert scrape(server.url, metrics_key=SECRET).reason is None
    assert [SECRET in r for r in server.requests if r.startswith("GET /metrics/ ")] == [True]


def test_cookies_proxies_and_netrc_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving(reply(BODY, Set_Cookie="a=b")) as server:
        assert [scrape(server.url).reason for _ in range(2)] == [None, None]
    assert not any("Cookie:" in request or "Authorization:" in request for request in server.requests)


def recorded(case: str, name: str) -> bytes:
    """Return a case's recorded HTTP answer as bytes."""
    import json  # noqa: PLC0415

    answer = json.loads((CASES / case / name).read_text(encoding="utf-8"))
    fields = {key.title().replace("-", "_"): value for key, value in answer.get("headers", {}).items()}
    return reply(answer.get("body", ""), f"{answer['status']} x", **fields)


@pytest.mark.parametrize(
    ("case", "name", "reason"),
    [
        ("19-metrics-unusable-inference-fine", "response_500.json", Reason.HTTP_5XX),
        ("34-metrics-redirect-auth-wrong-host", "response_401.json", Reason.AUTH),
        ("34-metrics-redirect-auth-wrong-host", "response_307_other_host.json", Reason.REDIRECT),
        ("44-html-login-page", "login.json", Reason.HTML),
    ],
)
def test_recorded_answer(case: str, name: str, reason: Reason) -> None:
    with serving(recorded(case, name)) as server:
        assert scrape(server.url, metrics_key=SECRET).reason is reason


def test_an_engine_that_still_loads_is_down_then_up() -> None:
    """Case 65: refused at first, then there; the same exporter sees both."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    collector = Collector(Settings((Target("t", url, f"{url}/metrics"),), "127.0.0.1", 0, 2.0, 2**20))
    assert collector.scrape()[0].reason is Reason.REFUSED
    with serving(reply(BODY), port):
        assert collector.scrape()[0].reason is None
    collector.close()


def test_a_hanging_health_page_is_ill_and_does_not_cost_the_metrics() -> None:
    def answer(connection: socket.socket, request: str) -> None:
        if request.startswith("GET /metrics "):
            connection.sendall(reply(BODY))
        else:
            server.closing.wait(10)

    with serving(answer) as server:
        found = scrape(server.url, timeout=0.5)
    assert (found.reason, found.healthy) == (None, False)
