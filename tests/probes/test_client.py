import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from probes.client import CachedState, Failed, Mark, Request
from probes.outcome import ErrorClass
from tests.probes.replay import (
    DONE,
    EVENT_STREAM,
    JSON,
    KEY,
    OK,
    PING,
    REQUEST,
    ROLE,
    SILENCE,
    Answer,
    ask,
    chunk,
    client_of,
    counted,
    failed,
    replaying,
    streamed,
    whole,
)

# --- What it measures -------------------------------------------------------------------------------------------


def test_the_ttft_ends_with_the_first_token() -> None:
    events = [ROLE, PING, chunk({"content": ""}), chunk({"content": "ok"}), chunk({}, "stop"), DONE]
    result = ask(streamed(*events, spacing_ms=40))
    assert result.ttft is not None
    assert 0.11 <= result.ttft <= 0.5
    assert result.total >= result.ttft + 0.03


def test_a_stream_that_a_gateway_held_back_is_marked() -> None:
    events = [ROLE, *(chunk({"content": letter}) for letter in "abcdef"), chunk({}, "stop"), DONE]
    assert Mark.BUFFERED in ask(Answer([(300, "".join(events))])).marks
    assert ask(streamed(*events)).marks == frozenset()


def test_the_time_to_connect_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    connect, seconds = socket.create_connection, 1.0

    def slow(*args: Any, **kwargs: Any) -> socket.socket:
        threading.Event().wait(seconds)
        return connect(*args, **kwargs)

    monkeypatch.setattr(socket, "create_connection", slow)
    answer = streamed(ROLE, chunk({"content": "ok"}, "stop"), DONE)
    with replaying(answer) as server, client_of(server.url) as client:
        called = time.monotonic()
        result = client.send(REQUEST)
        assert time.monotonic() - called > seconds
    assert result.ttft is not None
    assert result.ttft < seconds


def test_a_server_that_serves_another_model_now_is_asked_for_that() -> None:
    def serving(model: str) -> Answer:
        return whole({"status": 200, "body": json.dumps({"data": [{"id": model}]})})

    answer = streamed(ROLE, chunk({"content": "ok"}, "stop"), DONE)
    with replaying(answer, models=serving("one")) as server, client_of(server.url, model="") as client:
        client.models()
        server.models = serving("other")
        client.models()
        client.send(REQUEST)
        assert server.chats[-1].body["model"] == "other"


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


def test_headers_and_body_leave_together() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(1) as thread,
        client_of(f"http://127.0.0.1:{listener.getsockname()[1]}") as client,
    ):
        thread.submit(lambda: [client.send(REQUEST), client.send(REQUEST)])
        with listener.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
            assert connection.recv(65_536).endswith(b"}")  # it waits, and so gets what arrives first


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


def test_the_usage_is_told() -> None:
    usage = counted(5, prompt_tokens_details={"cached_tokens": 7})
    events = [ROLE, chunk({"content": "ok"}, "length"), chunk(usage=usage), DONE]
    result = ask(streamed(*events, spacing_ms=1))
    assert (result.prompt_tokens, result.completion_tokens) == (9, 5)
    assert (result.cached_tokens, result.cached_state) == (7, CachedState.REPORTED)
    assert result.marks == {Mark.CAPPED}


def test_no_usage_is_no_failure() -> None:
    result = ask(OK)
    assert result.failure is None
    assert (result.prompt_tokens, result.completion_tokens, result.cached_tokens) == (None, None, None)
    assert result.cached_state is CachedState.ABSENT


def test_an_answer_may_come_byte_by_byte() -> None:
    events = ["event: x\r\nid: 1\r\n", ROLE, chunk({"content": "ok"}), chunk({}, "stop", usage=counted(6)), DONE]
    result = ask(Answer([(0, letter) for letter in "".join(events).replace("\n\n", "\r\n\r\n")]))
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
