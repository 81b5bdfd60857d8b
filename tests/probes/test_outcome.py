import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import fields

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes import classify, outcome
from probes.outcome import ErrorClass, Failure, Names, Place

KEY = "sk-demo-0000-abcdefgh"
PLACE = Place("http://gpu:8000/v1/chat/completions", KEY)
HTML = {"content-type": "text/html; charset=utf-8"}
DONT_KNOW = {
    "error": {"message": "Unknown parameter: 'min_tokens'.", "param": "min_tokens", "code": "unknown_parameter"}
}


def answer(status: int, body: object = "", headers: Mapping[str, str] | None = None, place: Place = PLACE) -> Failure:
    return classify.of_answer(status, headers or {}, body if isinstance(body, str) else json.dumps(body), place)


@pytest.mark.parametrize(
    ("status", "body", "headers", "expected"),
    [
        (401, {"error": "Unauthorized"}, {}, ErrorClass.AUTH),
        (401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, {}, ErrorClass.AUTH),
        (401, {"detail": "Not authenticated"}, {"WWW-Authenticate": "Bearer"}, ErrorClass.AUTH),
        (403, {"error": {"message": "该令牌无权访问", "type": "new_api_error"}}, {}, ErrorClass.AUTH),
        (403, {"error": {"message": "no access", "code": "model_not_found"}}, {}, ErrorClass.UNKNOWN_MODEL),
        (401, "", {"www-authenticate": 'Bearer realm="x", error="invalid_token"'}, ErrorClass.OAUTH),
        (401, "", {"www-authenticate": 'Bearer authorization_uri="https://login.example"'}, ErrorClass.OAUTH),
        (401, {"error": "invalid_grant", "error_description": "expired"}, {}, ErrorClass.OAUTH),
        (401, {"error": {"message": "OAuth authentication is currently not supported."}}, {}, ErrorClass.OAUTH),
        (403, "<title>Sign in</title>", HTML, ErrorClass.HTML_LOGIN),
        (200, "<html><input type=password>", {}, ErrorClass.HTML_LOGIN),
        (302, "", {"location": "https://sso.example/start?rd=x"}, ErrorClass.HTML_LOGIN),
        (303, "", {"location": "/login"}, ErrorClass.HTML_LOGIN),
        (301, "", {"location": "https://gpu:8000/v1/chat/completions"}, ErrorClass.BASE_URL),
        (308, "", {"location": "/v1/chat/completions/"}, ErrorClass.BASE_URL),
        (302, "", {"location": "/"}, ErrorClass.BASE_URL),
        (200, "<!doctype html><title>One API</title><div id=root></div>", HTML, ErrorClass.BASE_URL),
        (404, {"detail": "Not Found"}, {}, ErrorClass.BASE_URL),
        (404, "404 page not found", {}, ErrorClass.BASE_URL),
        (404, {"error": {"message": "Invalid URL (POST /v1/v1/chat/completions)"}}, {}, ErrorClass.BASE_URL),
        (405, "<html>405 Not Allowed</html>", HTML, ErrorClass.BASE_URL),
        (404, {"error": {"message": "The model `x` does not exist.", "param": "model"}}, {}, ErrorClass.UNKNOWN_MODEL),
        (404, {"object": "error", "message": "The model `x` does not exist."}, {}, ErrorClass.UNKNOWN_MODEL),
        (503, {"error": {"message": "no channel", "code": "model_not_found"}}, {}, ErrorClass.UNKNOWN_MODEL),
        (407, "", {"proxy-authenticate": "Basic"}, ErrorClass.PROXY),
        (503, "<html>down</html>", {"Via": "1.1 proxy.example"}, ErrorClass.PROXY),
        (503, {"error": {"message": "overloaded"}}, {"Via": "1.1 google"}, ErrorClass.SERVER_ERROR),
        (429, {"error": {"message": "slow down"}}, {}, ErrorClass.RATE_LIMITED),
        (402, {"error": {"message": "no balance"}}, {}, ErrorClass.RATE_LIMITED),
        (400, DONT_KNOW, {}, ErrorClass.BAD_REQUEST),
        (422, {"detail": [{"loc": ["body", "x"], "msg": "wrong"}]}, {}, ErrorClass.BAD_REQUEST),
        (400, {"error": {"message": "maximum context length is 9 tokens"}}, {}, ErrorClass.CONTEXT_TOO_LONG),
        (400, {"error": {"message": "no", "code": "context_length_exceeded"}}, {}, ErrorClass.CONTEXT_TOO_LONG),
        (413, "", {}, ErrorClass.CONTEXT_TOO_LONG),
        (400, "The plain HTTP request was sent to HTTPS port", HTML, ErrorClass.TLS),
        (500, "", {}, ErrorClass.SERVER_ERROR),
        (504, "<html>504</html>", HTML, ErrorClass.SERVER_ERROR),
        (200, {"error": {"message": "quota", "code": "429"}}, {}, ErrorClass.ERROR_IN_200),
        (200, {"code": 1113, "msg": "no balance", "success": False}, {}, ErrorClass.ERROR_IN_200),
        (200, "busy", {}, ErrorClass.ERROR_IN_200),
        (200, {"choices": [{"message": {"content": "hi"}}]}, {}, ErrorClass.STREAM_WITHOUT_TOKEN),
        (200, " ", {}, ErrorClass.STREAM_WITHOUT_TOKEN),
    ],
)
def test_an_answer_has_its_class(status: int, body: object, headers: Mapping[str, str], expected: ErrorClass) -> None:
    failure = answer(status, body, headers)
    assert failure.error_class is expected, failure
    assert failure.status == status


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (socket.gaierror(-2, "unknown"), ErrorClass.DNS),
        (ConnectionRefusedError(111, "refused"), ErrorClass.CONNECTION_REFUSED),
        (ssl.SSLCertVerificationError("self-signed"), ErrorClass.TLS),
        (httpx2.ConnectTimeout(KEY), ErrorClass.TIMEOUT_CONNECT),
        (httpx2.ReadTimeout(KEY), ErrorClass.TIMEOUT_TOTAL),
        (httpx2.UnsupportedProtocol(KEY), ErrorClass.BASE_URL),
        (ConnectionResetError(KEY), ErrorClass.NETWORK),
        (httpx2.RemoteProtocolError(KEY), ErrorClass.NETWORK),
        (ValueError(KEY), ErrorClass.INTERNAL),
    ],
)
def test_an_exception_has_its_class_however_deep_it_lies(error: Exception, expected: ErrorClass) -> None:
    outer = RuntimeError("Connection error.")
    outer.__cause__ = error
    failure = classify.of_exception(outer, PLACE)
    assert failure.error_class is expected
    assert "sk-demo" not in repr(failure)


@pytest.mark.parametrize("error_class", ErrorClass)
def test_each_remedy_is_one_line_that_names_a_setting_of_the_target(error_class: ErrorClass) -> None:
    names = Names("GATEWAY_BASE_URL", "GATEWAY_API_KEY", "GATEWAY_MODEL", "GATEWAY_CA_FILE")
    remedy = Failure(error_class, "x", names=names).remedy
    assert "\n" not in remedy
    assert any(getattr(names, name.name) in remedy for name in fields(names))
    assert "VLLM_" not in remedy
    assert "{" not in remedy


def test_an_error_in_a_200_has_the_remedy_of_its_code() -> None:
    limited = answer(200, {"error": {"message": "daily quota exceeded", "code": 429}})
    assert limited.upstream_code == 429
    assert limited.remedy == Failure(ErrorClass.RATE_LIMITED, "").remedy


def test_an_oauth_challenge_leads_to_api_key_mode() -> None:
    assert "switch the tool to API-key mode" in Failure(ErrorClass.OAUTH, "").remedy


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-1", None), ("nan", None), ("soon", None), ("Mon, 01 Jan 2024 00:00:00 GMT", 0)],
)
def test_the_time_to_wait_is_told(header: str, seconds: float | None) -> None:
    failure = answer(429, headers={"Retry-After": header})
    assert failure.retry_after == seconds
    assert ("wait 7 s" in failure.remedy) == (header == "7")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("", "no key was sent"),
        ("sk-demo-0000 ", "holds a blank"),
        ("sk-demo-\n0000", "line break"),
        ("sk-démo-0000", "no key has"),
        ('"sk-demo-0000-abcdefgh"', "in quotes"),
        ("sk-demo", "was it cut?"),
        (KEY, "Unauthorized"),
    ],
)
def test_a_401_says_what_is_wrong_with_the_look_of_the_key(key: str, hint: str) -> None:
    failure = answer(401, {"error": "Unauthorized"}, place=Place(PLACE.url, key))
    assert hint in failure.message
    assert not key or key not in repr(failure)


@pytest.mark.parametrize(
    "told",
    [
        KEY,
        f" {KEY} ",
        f"'{KEY}x'",
        KEY[:12],
        KEY[4:],
        "sk-demo*********efgh",
        f"Bearer {KEY}",
        "bearer other-secret",
        "sk-proj-another1",
        f"Authorization:Bearer\t{KEY[:7]}",
    ],
)
def test_no_copy_of_a_key_is_left_in_a_text(told: str) -> None:
    text = outcome.mask(f"Incorrect API key provided: {told}, try again", KEY)
    assert text.startswith("Incorrect API key provided:")
    assert not any(part in text for part in ("demo", "efgh", "other-secret", "another"))


def test_a_key_with_a_blank_is_masked_in_both_halves() -> None:
    assert outcome.mask("got first-half and second-half", "first-half second-half") == "got *** and ***"


def test_a_message_is_one_short_line() -> None:
    text = outcome.mask("a\nb" + "c" * 500, "")
    assert len(text) == 200
    assert text.startswith("a b")
    assert len(outcome.mask("c" * 190 + KEY, KEY)) < 200


def test_a_redirect_names_the_host_but_no_user() -> None:
    failure = answer(302, headers={"location": "https://user:secret@sso.example/oauth2/start?token=abc"})
    assert failure.message == "sso.example answers with a login page: token missing or expired"


FIELDS = ("error", "message", "msg", "detail", "loc", "code", "type", "param", "choices", "data", "error_description")
NAMES = ("Location", "Content-Type", "Via", "Retry-After", "WWW-Authenticate", "X-Other")
SENT = ("max_tokens", "stream_options", "min_tokens", "include_usage", "continuous_usage_stats", "cache_salt")
BOTH = [{"loc": ["body", name], "msg": "Extra inputs are not permitted"} for name in ("min_tokens", "cache_salt")]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, DONT_KNOW, ("min_tokens",)),
        (422, {"detail": BOTH}, ("min_tokens", "cache_salt")),
        (400, {"error": {"message": "Unrecognized request argument supplied: stream_options"}}, ("stream_options",)),
        (400, {"error": {"message": "x: Extra inputs are not permitted: cache_salt"}}, ("cache_salt",)),
        (400, 'json: unknown field "cache_salt"', ("cache_salt",)),
        (
            400,
            {"error": {"message": "Unknown parameter", "param": "stream_options.continuous_usage_stats"}},
            ("continuous_usage_stats",),
        ),
        (
            400,
            {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."}},
            ("max_tokens",),
        ),
        (400, {"error": {"message": "Unsupported value: 'max_tokens'", "code": "unsupported_value"}}, ()),
        (400, {"error": {"message": "max_tokens must be at least 1", "param": "max_tokens"}}, ()),
        (400, {"error": {"message": "Unknown parameter: 'other'", "param": "other"}}, ()),
        (401, DONT_KNOW, ()),
    ],
)
def test_a_refused_parameter_is_recognised(status: int, body: object, expected: tuple[str, ...]) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    assert classify.refused_parameters(status, text, SENT) == expected


@pytest.mark.parametrize("body", ["null", "[]", "7", '{"detail":[7,{"loc":3}]}', '{"error":[]}', "[" * 100_000, "\x00"])
def test_no_body_is_too_odd(body: str) -> None:
    for status in (200, 302, 400, 401, 404, 429, 503):
        assert answer(status, body).remedy
        classify.refused_parameters(status, body, SENT)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(KEY),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    status=st.integers(200, 599),
    headers=st.dictionaries(st.sampled_from(NAMES), st.text(max_size=30) | st.just(f"http://{KEY}@[{KEY}"), max_size=4),
    body=st.text(max_size=200) | JSON_VALUES.map(json.dumps),
)
def test_any_answer_has_a_failure_that_is_short_and_holds_no_key(
    status: int, headers: dict[str, str], body: str
) -> None:
    failure = classify.of_answer(status, headers, body, PLACE)
    classify.refused_parameters(status, body, SENT)
    assert len(failure.message) <= 200
    assert "sk-demo" not in repr(failure)
    assert "\n" not in failure.message + failure.remedy


@pytest.mark.parametrize("text", ["a" * 10**6, "<form" * 10**6, "model " * 10**6, "-" * 10**6 + "***", KEY[:7] * 10**5])
def test_a_long_answer_takes_no_long_time(text: str) -> None:
    began = time.monotonic()
    for body in (text, f"<html>{text}", json.dumps({"error": {"message": text}})):
        answer(404, body)
        answer(200, body)
    assert time.monotonic() - began < 5
