import json
import logging
import socket
import ssl
import subprocess
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from probes.client import CachedState, Client, Endpoint, Failed, Mark, Request, Result
from probes.outcome import ErrorClass, Names
from tests.probes.replay import DONE, EVENT_STREAM, JSON, OK, Answer, chunk, replaying, whole
from tests.sockets import free_port

KEY = "sk-demo-0000-abcdefgh"
REQUEST = Request(({"role": "user", "content": "hello"},), max_tokens=8)
ROLE = chunk({"role": "assistant", "content": ""})
PING = ": ping\n\n"
SILENCE = Answer(status=0, ending="hold")


@contextmanager
def client_of(url: str, key: str = KEY, model: str = "demo-7b", ca_file: str = "", **options: Any) -> Iterator[Client]:
    with closing(Client(Endpoint(url, key, model, ca_file), **options)) as client:
        yield client


def ask(*answers: Answer, request: Request = REQUEST, **options: Any) -> Result:
    with replaying(*answers) as server, client_of(server.url, **options) as client:
        return client.send(request)


def streamed(*events: str, spacing_ms: float = 30) -> Answer:
    return Answer([(i * spacing_ms, event) for i, event in enumerate(events)])


def failed(result: Result) -> ErrorClass:
    assert result.failure, result
    assert result.ttft is None
    return result.failure.error_class


def counted(completion_tokens: int, **details: Any) -> dict[str, Any]:
    return {"prompt_tokens": 9, "completion_tokens": completion_tokens, **details}


# --- The first token --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delta",
    [
        {"content": " "},
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"refusal": "no"},
        {"content": None, "tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"name": "f"}},
    ],
)
def test_the_first_token_counts_in_any_channel(delta: dict[str, Any]) -> None:
    result = ask(streamed(ROLE, PING, chunk({"content": ""}), chunk(delta), chunk({}, "stop"), DONE, spacing_ms=40))
    assert result.ttft is not None
    assert 0.11 <= result.ttft <= 0.5
    assert result.total >= result.ttft + 0.03


@pytest.mark.parametrize("delta", [{"content": ""}, {"content": None}, {"tool_calls": []}, {"tool_calls": [{}]}, None])
def test_what_holds_no_token_is_none(delta: dict[str, Any] | None) -> None:
    assert failed(ask(streamed(ROLE, chunk(delta), chunk({}, "stop"), DONE))) is ErrorClass.STREAM_WITHOUT_TOKEN


def test_a_token_without_text_is_one_where_the_engine_counts_along() -> None:
    events = [
        chunk({"role": "assistant", "content": ""}, usage=counted(0)),
        chunk({"content": ""}, usage=counted(1)),
        chunk({"content": "é"}, usage=counted(2)),
        chunk({"content": ""}, "stop", usage=counted(3)),
        chunk(usage=counted(3)),
        DONE,
    ]
    result = ask(streamed(*events, spacing_ms=60))
    assert result.ttft is not None
    assert 0.055 <= result.ttft <= 0.115
    assert result.completion_tokens == 3


def test_a_usage_at_the_end_does_not_make_the_end_the_first_token() -> None:
    events = [ROLE, chunk({"content": ""}, "stop", usage=counted(5)), chunk(usage=counted(5)), DONE]
    assert failed(ask(streamed(*events))) is ErrorClass.STREAM_WITHOUT_TOKEN


def test_the_time_to_connect_is_not_in_it() -> None:
    answer = streamed(ROLE, chunk({"content": "ok"}, "stop"), DONE)
    with replaying(answer) as server, client_of(server.url) as client:
        cold, warm = client.send(REQUEST), client.send(REQUEST)
    assert cold.ttft is not None
    assert warm.ttft is not None
    assert abs(cold.ttft - warm.ttft) < 0.02
    assert abs(warm.started_at - time.time()) < 5


# --- What it sends ----------------------------------------------------------------------------------------------


def test_the_request_is_as_asked_for() -> None:
    extra = {"cache_salt": "s", "ignore_eos": True, "min_tokens": 8, "temperature": 0}
    request = Request(REQUEST.messages, 8, extra, {"X-data-parallel-rank": "3"})
    with replaying(OK) as server, client_of(server.url) as client:
        client.send(request)
        (seen,) = server.chats
    options = {"include_usage": True, "continuous_usage_stats": True}
    usual = {"model": "demo-7b", "messages": [*request.messages], "max_tokens": 8, "stream": True}
    assert seen.body == {**usual, "stream_options": options, **extra}
    assert seen.headers["x-data-parallel-rank"] == "3"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["accept-encoding"] == "identity"


def test_the_environment_adds_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "other")
    monkeypatch.setenv("OPENAI_ORG_ID", "other")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "other")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other.invalid")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Other: other\nAuthorization: other")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password other")
    monkeypatch.setenv("HOME", str(tmp_path))
    with replaying(OK) as server, client_of(server.url, key="") as client:
        client.models()
        client.send(REQUEST)
        assert "other" not in repr(server.seen)
        assert all("authorization" not in seen.headers for seen in server.seen)


def test_a_cookie_does_not_pin_it_to_a_replica() -> None:
    with replaying(Answer(OK.pieces, headers={**EVENT_STREAM, "set-cookie": "replica=1"})) as server:
        with client_of(server.url) as client:
            client.send(REQUEST)
            client.send(REQUEST)
        assert "cookie" not in server.chats[1].headers


def test_one_connection_serves_it_all() -> None:
    with replaying(OK) as server, client_of(server.url) as client:
        assert client.models() == ["demo-7b", "demo-lora"]
        assert client.send(REQUEST).failure is None
        assert client.send(REQUEST).failure is None
        assert server.connections == 1


def test_without_a_model_it_asks_the_first_that_is_listed() -> None:
    with replaying(OK) as server, client_of(server.url, model="") as client:
        assert client.send(REQUEST).failure is None
        assert server.chats[0].body["model"] == "demo-7b"


def refusing(name: str) -> Answer:
    error = {"error": {"message": f"Unknown parameter: '{name}'.", "param": name, "code": "unknown_parameter"}}
    return whole({"status": 400, "body": json.dumps(error)})


def test_each_refused_parameter_is_left_out() -> None:
    answers = [refusing("stream_options.continuous_usage_stats"), refusing("cache_salt"), OK]
    with replaying(*answers) as server, client_of(server.url) as client:
        result = client.send(Request(REQUEST.messages, 8, {"cache_salt": "s", "ignore_eos": True}))
        assert result.failure is None
        assert result.dropped == ("continuous_usage_stats", "cache_salt")
        assert server.chats[-1].body["stream_options"] == {"include_usage": True}
        assert "cache_salt" not in server.chats[-1].body
        assert server.chats[-1].body["ignore_eos"]


def test_a_parameter_that_is_refused_for_ever_ends_in_a_failure() -> None:
    with replaying(refusing("stream_options")) as server, client_of(server.url) as client:
        assert failed(client.send(REQUEST)) is ErrorClass.BAD_REQUEST
        assert len(server.chats) == 2


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_nothing_else_is_tried_again(status: int) -> None:
    retry = {**JSON, "retry-after": "0", "x-should-retry": "true"}
    with replaying(Answer(status=status, headers=retry)) as server, client_of(server.url) as client:
        assert client.send(REQUEST).failure
        assert len(server.chats) == 1


# --- What it reads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("details", "tokens", "state"),
    [
        ({}, None, CachedState.ABSENT),
        ({"prompt_tokens_details": None}, None, CachedState.NULL),
        ({"prompt_tokens_details": {}}, None, CachedState.EMPTY),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None, CachedState.NULL),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0, CachedState.REPORTED),
        ({"prompt_tokens_details": {"cached_tokens": 7}}, 7, CachedState.REPORTED),
    ],
)
def test_cached_tokens_are_one_of_four_facts(details: Any, tokens: int | None, state: CachedState) -> None:
    events = [ROLE, chunk({"content": "ok"}, "stop"), chunk(usage=counted(1, **details)), chunk(usage=None), DONE]
    result = ask(streamed(*events, spacing_ms=1))
    assert (result.cached_tokens, result.cached_state) == (tokens, state)
    assert result.prompt_tokens == 9


def test_no_usage_is_no_failure() -> None:
    result = ask(OK)
    assert result.failure is None
    assert (result.prompt_tokens, result.completion_tokens, result.cached_tokens) == (None, None, None)
    assert result.cached_state is CachedState.ABSENT


TOKENS = [chunk({"content": letter}) for letter in "abcdef"]


@pytest.mark.parametrize("together", [True, False])
def test_a_stream_that_was_held_back_is_marked(together: bool) -> None:
    events = [ROLE, *TOKENS, chunk({}, "stop"), DONE]
    answer = Answer([(300, "".join(events))]) if together else streamed(*events)
    assert (Mark.BUFFERED in ask(answer).marks) == together


def test_a_single_token_is_not_held_back() -> None:
    events = [ROLE, chunk({"content": "a"}), chunk({}, "length"), chunk(usage=counted(1)), DONE]
    assert ask(Answer([(300, "".join(events))]), request=Request(REQUEST.messages, 1)).marks == frozenset()


@pytest.mark.parametrize(
    ("extra", "finish", "produced", "marks"),
    [
        ({}, "length", 8, set()),
        ({}, "length", 5, {Mark.CAPPED}),
        ({}, "stop", 5, set()),
        ({"min_tokens": 6}, "stop", 5, {Mark.CAPPED}),
        ({"min_tokens": 5}, "stop", 5, set()),
        ({"ignore_eos": True}, "stop", 5, {Mark.CAPPED}),
    ],
)
def test_fewer_tokens_than_asked_for_are_marked(
    extra: dict[str, Any], finish: str, produced: int, marks: set[Mark]
) -> None:
    answer = streamed(chunk({"content": "a"}, finish), chunk(usage=counted(produced)), DONE)
    assert ask(answer, request=Request(REQUEST.messages, 8, extra)).marks == marks


def test_an_answer_may_come_in_any_pieces() -> None:
    text = "\ufeff" + "".join(["event: x\r\nid: 1\r\n", ROLE, *TOKENS, chunk({}, "stop", usage=counted(6)), DONE])
    text = text.replace("\n\n", "\r\n\r\n").replace("data: ", "data:")
    result = ask(Answer([(0, letter) for letter in text]))
    assert result.failure is None
    assert result.completion_tokens == 6


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(), ErrorClass.STREAM_WITHOUT_TOKEN),
        (streamed(DONE), ErrorClass.STREAM_WITHOUT_TOKEN),
        (streamed(chunk({"content": "ok"})), ErrorClass.STREAM_TRUNCATED),
        (Answer([(0, chunk({"content": "ok"}))], ending="abort"), ErrorClass.STREAM_TRUNCATED),
        (Answer(ending="abort"), ErrorClass.STREAM_TRUNCATED),
        (Answer([(0, "HTTP/1.1 200 OK\r\n")], status=0, ending="abort"), ErrorClass.NETWORK),
        (Answer([(0, "SSH-2.0\r\n\r\n")], status=0, ending="abort"), ErrorClass.NETWORK),
        (Answer(status=0, ending="abort"), ErrorClass.NETWORK),
        (streamed(chunk({"content": "ok"}), '{"error": {"message": "oom"}}'), ErrorClass.ERROR_IN_200),
        (streamed(chunk({"content": "ok"}), 'event: error\ndata: {"error": "oom"}\n\n', DONE), ErrorClass.ERROR_IN_200),
        (streamed("data: what\n\n", DONE), ErrorClass.ERROR_IN_200),
        (streamed('{"choices": [{"message": {"content": "hi"}}]}'), ErrorClass.STREAM_WITHOUT_TOKEN),
        (streamed("<title>Log in</title>"), ErrorClass.HTML_LOGIN),
        (streamed("<p>Welcome</p>"), ErrorClass.BASE_URL),
        (streamed('data: {"choices": 5, "usage": 7}\n\n', 'data: {"choices": [{"delta": 3}]}\n\n'), "stream_truncated"),
    ],
)
def test_an_answer_that_is_no_stream_has_its_class(answer: Answer, expected: ErrorClass) -> None:
    assert failed(ask(answer)) == expected


def test_what_comes_after_the_end_does_not_matter() -> None:
    events = [chunk({"content": "ok"}, "stop"), DONE]
    assert ask(Answer([(0, "".join(events))], ending="abort")).failure is None
    began = time.monotonic()
    assert ask(Answer([(0, "".join(events))], ending="hold"), total_timeout=30).failure is None
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (whole({"status": 200, "body": "<title>Sign in</title>"}), ErrorClass.HTML_LOGIN),
        (whole({"status": 200, "body": "{}"}), ErrorClass.ERROR_IN_200),
        (whole({"status": 200, "body": '{"error": "down"}'}), ErrorClass.ERROR_IN_200),
        (whole({"status": 401, "body": "{}"}), ErrorClass.AUTH),
        (SILENCE, ErrorClass.TIMEOUT_FIRST_TOKEN),
    ],
)
def test_a_list_of_models_that_is_none_has_its_class(models: Answer, expected: ErrorClass) -> None:
    with replaying(OK, models=models) as server, client_of(server.url, first_token_timeout=0.3) as client:
        with pytest.raises(Failed) as raised:
            client.models()
        assert raised.value.failure.error_class is expected


# --- Deadlines --------------------------------------------------------------------------------------------------


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


# --- Keys and certificates --------------------------------------------------------------------------------------


def echoing(status: int, headers: dict[str, str] | None = None) -> Answer:
    body = json.dumps({"error": {"message": f"Incorrect key {KEY} or {KEY[:9]}", "code": 7}, "key": KEY})
    return whole({"status": status, "body": body, "headers": {**JSON, **(headers or {})}})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *((echoing(status), None) for status in (200, 400, 401, 403, 404, 405, 413, 422, 429, 500, 503)),
        (echoing(401, {"www-authenticate": f'Bearer realm="{KEY}", error="invalid_token"'}), ErrorClass.OAUTH),
        (echoing(302, {"location": f"/login?key={KEY}"}), ErrorClass.HTML_LOGIN),
        (echoing(301, {"location": f"http://{KEY}/{KEY}"}), ErrorClass.BASE_URL),
        (Answer(status=503, headers={"via": f"1.1 {KEY}"}), ErrorClass.PROXY),
        (streamed(f"data: {json.dumps({'error': KEY})}\n\n"), ErrorClass.ERROR_IN_200),
        (streamed(f"<title>Sign in</title> {KEY}"), ErrorClass.HTML_LOGIN),
        (streamed(f"{KEY} is unknown"), ErrorClass.ERROR_IN_200),
        (Answer([(0, f"{KEY}\r\n\r\n")], status=0, ending="abort"), ErrorClass.NETWORK),
    ],
)
def test_the_key_appears_nowhere(
    answer: Answer, expected: ErrorClass | None, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with replaying(answer, models=answer) as server, client_of(server.url) as client:
        result = client.send(REQUEST)
        with pytest.raises(Failed) as raised:
            client.models()
    assert failed(result) is (expected or failed(result))
    assert result.failure
    shown = "".join(traceback.format_exception(raised.value))
    for text in (
        repr(result),
        result.failure.remedy,
        shown,
        repr(raised.value),
        repr(client),
        caplog.text,
        *capfd.readouterr(),
    ):
        assert "sk-demo" not in text
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "key", [f"{KEY} ", f" {KEY}", f"{KEY[:9]} {KEY[9:]}", f"{KEY}\n", "sk-démo-0000", "sk-\x00demo"]
)
def test_a_key_that_no_header_can_hold_is_not_sent(key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with replaying(OK) as server, client_of(server.url, key=key) as client:
        result = client.send(REQUEST)
        assert failed(result) is ErrorClass.AUTH
        assert result.failure
        assert "blank" in result.failure.message
        assert "VLLM_API_KEY" in result.failure.remedy
        assert server.seen == []
        assert "sk-" not in caplog.text + repr(result) + repr(Endpoint(server.url, key))


def test_a_failure_speaks_of_the_settings_of_its_target() -> None:
    result = ask(whole({"status": 401}), names=Names(api_key="GATEWAY_API_KEY"))
    assert result.failure
    assert "GATEWAY_API_KEY" in result.failure.remedy


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that no authority has signed, and a server's side of it."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context


def test_a_private_authority_needs_its_file(certificate: tuple[Path, ssl.SSLContext]) -> None:
    ca_file, context = certificate
    with replaying(OK, tls=context) as server:
        with client_of(server.url) as client:
            result = client.send(REQUEST)
            assert failed(result) is ErrorClass.TLS
            assert result.failure
            assert "VLLM_CA_FILE" in result.failure.remedy
        with client_of(server.url, ca_file=str(ca_file)) as client:
            assert client.models()
            assert client.send(REQUEST).failure is None


def test_a_deadline_holds_over_tls(certificate: tuple[Path, ssl.SSLContext]) -> None:
    ca_file, context = certificate
    with (
        replaying(SILENCE, tls=context) as server,
        client_of(server.url, ca_file=str(ca_file), first_token_timeout=0.4) as client,
    ):
        client.models()
        began = time.monotonic()
        assert failed(client.send(REQUEST)) is ErrorClass.TIMEOUT_FIRST_TOKEN
        assert time.monotonic() - began < 0.9


def test_https_to_a_server_without_tls_has_its_class() -> None:
    with replaying(OK) as server, client_of(server.url.replace("http:", "https:")) as client:
        assert failed(client.send(REQUEST)) is ErrorClass.TLS


def test_a_ca_file_that_is_none_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for name in ("empty.pem", "missing.pem"):
        with pytest.raises(Failed) as raised:
            Client(Endpoint("https://127.0.0.1", ca_file=str(tmp_path / name)))
        assert raised.value.failure.error_class is ErrorClass.TLS


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://no-such-host.invalid", ErrorClass.DNS),
        (f"http://{'x' * 70}.example", ErrorClass.DNS),
        ("127.0.0.1:8000", ErrorClass.BASE_URL),
    ],
)
def test_an_address_that_leads_nowhere_has_its_class(url: str, expected: ErrorClass) -> None:
    with client_of(url) as client:
        assert failed(client.send(REQUEST)) is expected


def test_a_restarted_server_is_found_again() -> None:
    port = free_port()
    with client_of(f"http://127.0.0.1:{port}") as client:
        assert failed(client.send(REQUEST)) is ErrorClass.CONNECTION_REFUSED
        for _ in range(2):
            with replaying(OK, port=port):
                assert client.send(REQUEST).failure is None
