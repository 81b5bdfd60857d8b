"""What real servers and gateways answer, in their own words, and the class that each must get."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from probes import classify
from probes.outcome import ErrorClass, Failure, Place

PLACE = Place("http://gw.example:8000/v1/chat/completions", "sk-demo-0000-abcdefgh")
HTML = {"content-type": "text/html; charset=utf-8"}
SENT = ("max_tokens", "stream_options", "min_tokens", "ignore_eos", "include_usage", "continuous_usage_stats")


def answer(status: int, body: object = "", headers: Mapping[str, str] | None = None) -> Failure:
    return classify.of_answer(status, headers or {}, body if isinstance(body, str) else json.dumps(body), PLACE)


def error(message: str, **fields: object) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def named(rows: dict[str, tuple[object, ...]]) -> list[Any]:
    return [pytest.param(*row, id=name) for name, row in rows.items()]


MODELS: dict[str, tuple[object, ...]] = {
    "Azure": (404, error("The API deployment for this resource does not exist.", code="DeploymentNotFound")),
    "OpenRouter": (400, error("qwen9 is not a valid model ID", code=400)),
    "OpenRouter without a provider": (404, error("No endpoints found for qwen9.", code=404)),
    "Moonshot": (404, error("Not found the model qwen9 or Permission denied", type="resource_not_found_error")),
    "Zhipu": (400, error("模型不存在", code="1211")),
    "Anthropic": (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}}),
    "Gemini": (404, [error("models/gemini-9 is not found for API version v1main", code=404, status="NOT_FOUND")]),
    "Together": (404, error("Unable to access model qwen9. Please visit https://api.together.ai/models")),
    "Envoy": (404, "No matching route found. It is likely because the model specified is not configured in it."),
    "422 with the parameter": (422, error("It is none of those.", param="model")),
    "FastAPI": (422, {"detail": [{"loc": ["body", "model"], "msg": "Input should be 'a' or 'b'"}]}),
    "one-api": (503, error("当前分组 default 下对于模型 qwen9 无可用渠道", type="one_api_error")),
    "new-api": (503, error("No available channel for model qwen9 under group default", type="new_api_error")),
    "one-api's token": (403, error("该令牌无权使用模型 qwen9", type="one_api_error")),
    "LiteLLM's key": (401, error("key not allowed to access model.", type="key_model_access_denied", param="model")),
    "LiteLLM's team": (403, error("Team not allowed to access model. Tried qwen9", type="team_model_access_denied")),
    "DeepSeek": (400, error("Model Not Exist", type="invalid_request_error")),
    "Bedrock": (400, {"message": "The provided model identifier is invalid."}),
    "Copilot": (400, error("The requested model is not supported.", code="model_not_supported")),
    "Hugging Face": (400, error("The requested model 'qwen9' is not supported by any provider you have enabled.")),
    "Ollama": (404, {"error": "model 'qwen2.5:7b' not found"}),
    "SiliconFlow": (400, {"code": 20012, "message": "Model does not exist. Please check it carefully."}),
    "Groq, later": (400, error("The model `x` has been decommissioned and is no longer supported.")),
    "an adapter": (404, error("LoRA adapter x not found")),
    "LiteLLM's group": (400, error("There are no healthy deployments for this model. Received Model Group=x")),
    "a code alone": (400, {"error": {"code": "InvalidModel", "message": "no"}}),
    "LM Studio": (404, error("No models loaded. Please load a model.")),
}


@pytest.mark.parametrize(("status", "body"), named(MODELS))
def test_a_model_that_is_not_there_is_named(status: int, body: object) -> None:
    assert answer(status, body).error_class is ErrorClass.UNKNOWN_MODEL


CONTEXT: dict[str, tuple[object, ...]] = {
    "vLLM": (
        400,
        "You passed 9001 input tokens and requested 8 output tokens. However, the model's context length is only 8192.",
    ),
    "vLLM before": (400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."),
    "vLLM with images": (400, "The prompt (total length 9010) is too long to fit into the model"),
    "vLLM without room": (400, "max_tokens must be at least 1, got -810."),
    "SGLang": (400, "Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens)."),
    "SGLang's other": (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
    "llama.cpp": (400, "the request exceeds the available context size (4096 tokens), try increasing it"),
    "TGI": (422, "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000"),
    "TGI with the answer": (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."),
    "Ollama": (400, "the input length exceeds the context length"),
    "Gemini": (400, "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."),
    "Anthropic": (400, "prompt is too long: 209000 tokens > 200000 maximum"),
    "Bedrock": (400, "Input is too long for requested model."),
    "Groq": (400, "Please reduce the length of the messages or completion."),
    "DashScope": (400, "Range of input length should be [1, 30720]"),
    "Zhipu": (400, "Prompt 超长"),
    "another": (400, "prompt tokens (9000) exceeds max sequence length (8192)"),
    "another's sum": (400, "The input length (9000) is greater than the maximum length (8192)"),
    "without room for another name": (400, "max_new_tokens must be >= 1, got -810"),
}


@pytest.mark.parametrize(("status", "message"), named(CONTEXT))
def test_a_prompt_that_is_too_long_is_named(status: int, message: str) -> None:
    assert answer(status, error(message)).error_class is ErrorClass.CONTEXT_TOO_LONG


@pytest.mark.parametrize(
    "message", ["context length exceeded", "max_tokens must be at least 1", "model x does not support chat"]
)
def test_what_is_said_without_a_reason_stays_a_bad_request(message: str) -> None:
    assert answer(400, error(message)).error_class is ErrorClass.BAD_REQUEST


QUOTA: dict[str, tuple[object, ...]] = {
    "new-api": (403, error("用户额度不足, 剩余额度: ¥0.000000", code="insufficient_user_quota")),
    "new-api's token": (401, error("该令牌额度已用尽", type="new_api_error")),
    "OpenRouter": (403, error("Key limit exceeded. Manage it using https://openrouter.ai/settings/keys", code=403)),
    "LiteLLM": (400, error("Budget has been exceeded! Current cost: 0.5, Max budget: 0.1", type="budget_exceeded")),
    "OpenAI": (403, error("You exceeded your current quota, please check your plan and billing details.")),
    "Anthropic": (400, error("Your credit balance is too low to access the Anthropic API.")),
    "xAI": (403, {"error": "Your team has either used all available credits or reached its monthly spending limit."}),
    "SiliconFlow": (403, {"code": 30001, "message": "Sorry, your account balance is insufficient"}),
    "Azure": (403, {"statusCode": 403, "message": "Out of call volume quota. Quota will be replenished in 12:00:00."}),
    "DashScope": (400, error("Access denied, please make sure your account is in good standing.", code="Arrearage")),
    "OpenAI's limit": (403, error("Billing hard limit has been reached")),
    "a key's limit": (403, error("API key has reached its usage limit")),
    "Groq": (413, error("Request too large for model x on tokens per minute", code="rate_limit_exceeded")),
}


@pytest.mark.parametrize(("status", "body"), named(QUOTA))
def test_a_balance_or_a_limit_that_is_used_up_is_no_wrong_key(status: int, body: object) -> None:
    assert answer(status, body).error_class is ErrorClass.RATE_LIMITED


KEYS: dict[str, tuple[object, ...]] = {
    "Gemini": (400, error("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT")),
    "Gemini in a list": (400, [error("API key not valid. Please pass a valid API key.", code=400)]),
    "Gemini's old key": (400, error("API key expired. Please renew the API key.")),
    "xAI": (400, {"error": "Incorrect API key provided: xx. You can obtain an API key from https://console.x.ai."}),
    "LiteLLM": (400, error("Authentication Error, LiteLLM Virtual Key expected.", type="auth_error")),
    "AWS": (403, {"Message": "User is not authorized to access this resource with an explicit deny"}),
    "Envoy": (401, "Jwt is missing"),
}


@pytest.mark.parametrize(("status", "body"), named(KEYS))
def test_a_key_that_is_refused_is_named_whatever_the_status(status: int, body: object) -> None:
    failure = answer(status, body, {"via": "1.1 abc.cloudfront.net (CloudFront)"})
    assert failure.error_class is ErrorClass.AUTH


@pytest.mark.parametrize(
    "location",
    [
        "https://kc.example/realms/demo/protocol/openid-connect/auth?response_type=code&client_id=gw",
        "https://auth.example.com/?rd=https%3A%2F%2Fgw%2Fv1&rm=POST",
        "https://dex.example/dex/auth?client_id=gw&redirect_uri=x&response_type=code",
        "https://idp.example/adfs/ls/?wa=wsignin1.0",
        "https://id.example/authn?x",
        "https://id.example/start?redirect_uri=https%3A%2F%2Fgw",
        "https://acme.auth0.com/u/identifier?state=x",
        "/auth?next=/v1/chat/completions",
        "/account?ReturnUrl=%2Fv1",
        "/web?to=http%3A%2F%2Fgw.example%2Fv1%2Fchat%2Fcompletions",
        "/session/new",
    ],
)
def test_a_redirect_to_a_sign_in_is_named(location: str) -> None:
    assert answer(302, "", {"location": location}).error_class is ErrorClass.HTML_LOGIN


@pytest.mark.parametrize("location", ["/", "/api/v2", "https://www.example/authors?page=2", "http://[", "//"])
def test_another_redirect_is_a_wrong_address(location: str) -> None:
    assert answer(302, "", {"location": location}).error_class is ErrorClass.BASE_URL


def test_the_name_of_the_gateway_itself_makes_no_sign_in_of_a_redirect() -> None:
    place = Place("http://auth.example/v1/chat/completions")
    failure = classify.of_answer(302, {"location": "http://auth.example/ui/"}, "", place)
    assert failure.error_class is ErrorClass.BASE_URL


SIGN_IN = [
    '<meta http-equiv="refresh" content="0;url=https://kc/realms/x/protocol/openid-connect/auth">',
    "<script>window.location.replace('https://id.example/start?client_id=gw&amp;redirect_uri=x')</script>",
    "<script>window.location.href = 'https://id.example/oauth2/v1/authorize'</script>",
    '<form method="POST" action="https://x.example/"><input type="hidden" name="SAMLRequest" value="x"></form>',
    '<form id="f" action="https://idp.example/adfs/ls"></form>',
    "<title>authentik</title><ak-flow-executor></ak-flow-executor>",
    "<title>Acme SSO</title><p>Please authenticate to continue</p>",
    "<h1>Session expired</h1><a href='/login'>Log in again</a>",
    "<title>Access Portal</title><p>Authentication required</p>",
    "<title>Anmelden</title>",
    "<h1>Sign in</h1><input type=email>",
    "<title>Working...</title><form action='https://x.example'><input type=hidden name='id_token'></form>",
]


@pytest.mark.parametrize("page", SIGN_IN)
def test_a_page_that_signs_in_or_leads_there_is_named(page: str) -> None:
    assert answer(200, f"<!doctype html><html>{page}</html>", HTML).error_class is ErrorClass.HTML_LOGIN


@pytest.mark.parametrize(
    "page",
    [
        "<title>One API</title><noscript>You need to enable JavaScript.</noscript><div id=root></div>",
        "<title>vLLM gateway</title><nav><a href='/login'>Sign in</a></nav><form action='/search'></form>",
        "<title>Home</title><script>window.location.hash = '#/'</script><meta http-equiv=refresh content='5;url=/'>",
    ],
)
def test_another_page_is_a_wrong_address(page: str) -> None:
    assert answer(200, page, HTML).error_class is ErrorClass.BASE_URL


def test_a_page_that_comes_with_a_401_is_about_the_key() -> None:
    page = "<title>401 Authentication Required</title>Authentication required"
    assert answer(401, page, {**HTML, "www-authenticate": "Basic"}).error_class is ErrorClass.AUTH


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (502, {"via": "1.1 google"}, ErrorClass.SERVER_ERROR),
        (503, {"via": "1.1 varnish, 1.1 varnish"}, ErrorClass.SERVER_ERROR),
        (504, {"via": "1.1 0af.cloudfront.net (CloudFront)"}, ErrorClass.SERVER_ERROR),
        (503, {"via": "1.1 gw.example:8000 (squid/6.1)"}, ErrorClass.SERVER_ERROR),
        (403, {"via": "1.1 kong/3.8"}, ErrorClass.AUTH),
        (503, {"via": "1.1 proxy.corp (squid/6.1)"}, ErrorClass.PROXY),
        (403, {"via": "1.1 proxy.corp, 1.1 varnish"}, ErrorClass.PROXY),
        (503, {"x-squid-error": "ERR_CONNECT_FAIL 111"}, ErrorClass.PROXY),
        (407, {"via": "1.1 varnish", "proxy-authenticate": "Basic"}, ErrorClass.PROXY),
        (500, {"via": "1.1 proxy.corp"}, ErrorClass.SERVER_ERROR),
    ],
)
def test_the_front_of_a_gateway_is_no_proxy(status: int, headers: dict[str, str], expected: ErrorClass) -> None:
    assert answer(status, "<html>down</html>", {**HTML, **headers}).error_class is expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, "Reason: You're speaking plain HTTP to an SSL-enabled server port.<br/>", ErrorClass.TLS),
        (400, "Bad Request\nThis combination of host and port requires TLS.\r\n", ErrorClass.TLS),
        (408, "stream timeout", ErrorClass.TIMEOUT_TOTAL),
        (421, "", ErrorClass.BASE_URL),
        (400, error("Invalid URL (POST /chat/completions)"), ErrorClass.BASE_URL),
        (404, error("Resource not found", code="404"), ErrorClass.BASE_URL),
        (404, "Path '/v1/models' not found. Please ping http://x/-/routes for available routes.", ErrorClass.BASE_URL),
        (400, error("invalid token id 7 in the prompt"), ErrorClass.BAD_REQUEST),
    ],
)
def test_other_statuses_have_their_class(status: int, body: object, expected: ErrorClass) -> None:
    assert answer(status, body).error_class is expected


REFUSED: dict[str, tuple[object, ...]] = {
    "not valid": (error("'stream_options' is not a valid parameter"), ("stream_options",)),
    "invalid field": (error("Invalid field: stream_options"), ("stream_options",)),
    "invalid argument": (error("Invalid argument: 'min_tokens'."), ("min_tokens",)),
    "deprecated": (error("max_tokens is deprecated for this model, use max_completion_tokens."), ("max_tokens",)),
    "中文": (error("不支持的参数: stream_options"), ("stream_options",)),
    "中文, behind it": (error("该模型不支持stream_options参数"), ("stream_options",)),
    "by code": (error("ignore_eos cannot be used here", code="unsupported_parameter"), ("ignore_eos",)),
    "Gemini": (
        [error('Unknown name "min_tokens": Cannot find field.\nUnknown name "ignore_eos": Cannot find field.')],
        ("min_tokens", "ignore_eos"),
    ),
    "pydantic": (
        error(
            "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted', "
            "'input': {'include_usage': True, 'continuous_usage_stats': True}}]"
        ),
        ("stream_options",),
    ),
    "cannot": (error("'stream_options' cannot be used with this model"), ("stream_options",)),
    "no longer": (error("max_tokens is no longer supported"), ("max_tokens",)),
    "instead": (error("Use 'max_completion_tokens' instead of 'max_tokens'."), ("max_tokens",)),
    "doesn't": (error("This server doesn't recognize the field stream_options"), ("stream_options",)),
    "another thing": (error("model x does not support chat; max_tokens=8"), ()),
    "another thing, one clause": (error("model x with max_tokens=8 is not supported"), ()),
    "another model": (error("unsupported model: x. max_tokens: 8"), ()),
    "a value that is too much": (error("The model does not support max_tokens greater than 4"), ()),
    "a value by name": (error("Value 8 of max_tokens is not supported"), ()),
    "an unknown error": (error("unknown error while reading max_tokens"), ()),
    "a value": (error("Invalid parameter: max_tokens must be at least 16"), ()),
}


@pytest.mark.parametrize(("body", "expected"), named(REFUSED))
def test_only_a_parameter_that_is_refused_itself_is_dropped(body: object, expected: tuple[str, ...]) -> None:
    assert classify.refused_parameters(400, json.dumps(body, ensure_ascii=False), SENT) == expected


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ([error("quota", code=429)], 429, "quota"),
        (error("slow", type="rate_limit", status=429), 429, "slow"),
        ({"choices": [{"finish_reason": "error", "error": {"code": 502, "message": "down"}}]}, 502, "down"),
        ({"choices": [{"delta": {}, "finish_reason": "error"}]}, None, "finish_reason error"),
    ],
)
def test_an_error_in_a_200_is_found_in_any_shape(body: object, code: int | None, message: str) -> None:
    failure = answer(200, body)
    assert failure.error_class is ErrorClass.ERROR_IN_200
    assert failure.upstream_code == code
    assert failure.message.endswith(message)
