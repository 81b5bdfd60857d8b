import json
import logging
import ssl
import subprocess
import time
import traceback
from pathlib import Path

import pytest

from probes.client import Client, Endpoint, Failed, Result
from probes.outcome import ErrorClass, Names
from probes.stream import Stream
from tests.probes.replay import (
    JSON,
    KEY,
    OK,
    REQUEST,
    SILENCE,
    Answer,
    ask,
    client_of,
    closed_meanwhile,
    failed,
    replaying,
    streamed,
    whole,
)


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


def test_closing_ends_a_request_at_once_over_tls(certificate: tuple[Path, ssl.SSLContext]) -> None:
    ca_file, context = certificate
    results: list[Result] = []
    with replaying(SILENCE, tls=context) as server, client_of(server.url, ca_file=str(ca_file)) as client:
        assert closed_meanwhile(client, lambda: results.append(client.send(REQUEST)), lambda: server.chats) < 0.5
        assert failed(results[0]) is ErrorClass.NETWORK


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


def test_a_fault_of_the_probe_is_logged_once_by_its_lines_of_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError(KEY)

    monkeypatch.setattr(Stream, "feed", broken)
    with replaying(OK) as server, client_of(server.url) as client:
        results = [client.send(REQUEST), client.send(REQUEST)]
    assert [failed(result) for result in results] == [ErrorClass.INTERNAL] * 2
    (record,) = caplog.records
    assert record.getMessage().startswith("ValueError within the probe:\n")
    assert "in broken" in record.getMessage()
    assert KEY not in repr((results, caplog.text))
