"""The client against the case files: each answer is replayed over loopback HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.client import CachedState, Failed
from probes.outcome import ErrorClass
from tests.inputs import CASES, expectation
from tests.probes.replay import JSON, MODELS, OK, REQUEST, Answer, ask, client_of, of_file, replaying, whole
from tests.sockets import free_port

DETAILS = {"null.jsonl": CachedState.NULL, "empty_object.jsonl": CachedState.EMPTY}
STREAMS = ("37", "39", "40", "43")
DECIDED_BY_ONE_REQUEST = {"outcome", "error_class", "ttft_ms", "cached_tokens", "state", "upstream_code"}
KNOWN = DECIDED_BY_ONE_REQUEST | {"third_is", "doctor", "hint"}


def folder(number: str) -> Path:
    return next(CASES.glob(f"{number}-*"))


def expected_of(*numbers: str) -> Iterator[Any]:
    """Yield file and expectation of each file that a single request can decide."""
    for number in numbers:
        for name, expected in expectation(folder(number))["probe"].items():
            assert set(expected) <= KNOWN, f"{number}/{name} expects something new"
            if set(expected) & {"outcome", "ttft_ms", "cached_tokens"}:
                yield pytest.param(folder(number) / name, expected, id=f"{number}-{name}")


@pytest.mark.parametrize(("path", "expected"), list(expected_of(*STREAMS)))
def test_a_stream_is_read_for_what_it_is(path: Path, expected: dict[str, Any]) -> None:
    result = ask(of_file(path))
    if "error_class" in expected:
        assert expected["outcome"] == "error"
        assert result.failure
        assert result.failure.error_class == expected["error_class"]
        assert result.failure.upstream_code == expected.get("upstream_code")
        assert result.ttft is None
    else:
        assert result.failure is None
        assert result.ttft is not None
        low, high = expected.get("ttft_ms") or (0, 800)
        assert low <= result.ttft * 1000 <= high
    if "cached_tokens" in expected:
        assert result.cached_tokens == expected["cached_tokens"]
        assert (result.prompt_tokens, result.completion_tokens) == (2003, 8)
    if "state" in expected:
        assert (result.cached_state is CachedState.REPORTED) == (expected["state"] == "reported")
        assert result.cached_state is DETAILS.get(path.name, CachedState.REPORTED)


def test_44_a_login_page_is_named() -> None:
    expected = expectation(folder("44"))["probe"]
    for name in ("redirect.json", "login.json"):
        result = ask(of_file(folder("44") / name))
        assert result.failure
        assert result.failure.error_class == expected["error_class"]
        assert "127.0.0.1" in result.failure.message
        assert "login page: token missing or expired" in result.failure.message
        assert len(result.failure.message) <= expected["log_body_max_chars"]
        assert result.ttft is None


def test_44_the_key_does_not_follow_a_redirect() -> None:
    with replaying(OK) as elsewhere:
        target = {"location": f"{elsewhere.url}/v1/chat/completions"}
        failure = ask(Answer(status=307, headers=target)).failure
        assert failure
        assert failure.error_class is ErrorClass.BASE_URL
        assert elsewhere.url in failure.message
        assert elsewhere.connections == 0


@pytest.mark.parametrize("name", expectation(folder("45"))["probe"])
def test_45_a_refused_parameter_is_left_out_once_and_for_all(name: str) -> None:
    expected = expectation(folder("45"))["probe"][name]
    with replaying(of_file(folder("45") / name), OK) as server, client_of(server.url) as client:
        result = client.send(REQUEST)
        assert len(server.chats) == 1 + expected["retries"]
        if "error_class" in expected:
            assert result.failure
            assert result.failure.error_class == expected["error_class"]
            assert result.dropped == ()
            return
        assert result.failure is None
        lacks = expected["second_request_lacks"]
        assert result.dropped == tuple(lacks)
        client.send(REQUEST)  # it remembers
        assert len(server.chats) == 3
        for seen in server.chats[1:]:
            assert not set(lacks) & set(seen.body)
            assert set(expected.get("second_request_has", ())) <= set(seen.body)


def test_51_the_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = expectation(folder("51"))["probe"]
    with replaying(of_file(folder("51") / "proxy_answer.json")) as proxy, replaying(OK) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        with client_of(server.url) as client:
            assert client.models()
            assert client.send(REQUEST).failure is None
        assert bool(proxy.connections) == expected["default_uses_env_proxy"]


def test_51_a_proxy_that_answers_is_named() -> None:
    failure = ask(of_file(folder("51") / "proxy_answer.json")).failure
    assert failure
    assert failure.error_class is ErrorClass.PROXY
    assert "proxy.example" in failure.message


def table() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder("53") / "answers.json").read_text(encoding="utf-8"))
    return rows


@pytest.mark.parametrize("row", table(), ids=lambda row: str(row["name"]))
def test_53_each_failure_has_its_class(row: dict[str, Any]) -> None:
    failing = whole({"headers": JSON, **row}) if "status" in row else OK
    if row.get("connect") == "accept_then_silence":
        failing = Answer(status=0, ending="hold")
    chat, models = (OK, failing) if row.get("path") == "/v1/models" else (failing, MODELS)
    with replaying(chat, models=models) as server:
        url = server.url if row.get("connect") != "refused" else f"http://127.0.0.1:{free_port()}"
        with client_of(url, first_token_timeout=0.3) as client:
            result = client.send(REQUEST)
            if row["class"] == "ok_with_warning":  # the caller warns: it is models() that fails, alone
                with pytest.raises(Failed) as raised:
                    client.models()
                assert raised.value.failure.error_class is ErrorClass.SERVER_ERROR
                assert result.failure is None
                return
            assert result.failure
            assert result.failure.error_class == row["class"]
            assert expectation(folder("53"))["probe"]["key_never_in_output"] not in repr(result)
            if result.failure.error_class is ErrorClass.UNKNOWN_MODEL:
                assert result.failure.message.endswith("It offers: demo-7b, demo-lora")
