"""The canary's settings: engines as the exporter reads them, and a gateway's triple."""

import pytest

from exporter.checks import ConfigError
from probes.client import Endpoint
from probes.config import load
from probes.outcome import Names

TRIPLE = {"TAOTOKEN_BASE_URL": "https://gateway.example/api/v1", "TAOTOKEN_API_KEY": "sk-1", "TAOTOKEN_MODEL": "qwen"}


def test_an_engine_alone() -> None:
    settings = load({"VLLM_URL": "http://gpu:9000/v1", "VLLM_API_KEY": "sk-2", "VLLM_MODEL": "m"})
    (target,) = settings.targets
    assert (target.name, target.endpoint) == ("vllm", Endpoint("http://gpu:9000", "sk-2", "m"))
    assert (target.interval, target.tokens_per_minute, settings.port) == (60, 20_000, 9392)
    assert (target.curve_interval, target.curve_tokens) == (3600, 100_000)
    assert target.engine
    assert target.engine.metrics_url == "http://gpu:9000/metrics"


@pytest.mark.parametrize("base", ["https://gateway.example/api", "https://gateway.example/api/v1"])
def test_a_gateway_beside_it(base: str) -> None:
    _, gateway = load(TRIPLE | {"TAOTOKEN_BASE_URL": base}).targets
    assert (gateway.name, gateway.engine) == ("taotoken", None)
    assert gateway.endpoint == Endpoint("https://gateway.example/api", "sk-1", "qwen")
    assert gateway.names == Names("TAOTOKEN_BASE_URL", "TAOTOKEN_API_KEY", "TAOTOKEN_MODEL", "")
    assert (gateway.interval, gateway.tokens_per_minute, gateway.curve_interval) == (600, 8000, 0)


def test_the_neutral_names_and_both_gateways_at_once() -> None:
    neutral = {name.replace("TAOTOKEN", "GATEWAY"): value for name, value in TRIPLE.items()}
    assert [target.name for target in load(TRIPLE | neutral).targets] == ["vllm", "gateway", "taotoken"]


def test_sweeps_are_switched_apart() -> None:
    environ = TRIPLE | {"APC_CURVE_INTERVAL": "0", "GATEWAY_CURVE_INTERVAL": "86400", "APC_CURVE_TOKENS": "9000"}
    assert [(t.curve_interval, t.curve_tokens) for t in load(environ).targets] == [(0, 9000), (86_400, 9000)]


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        (
            {"APC_CURVE_INTERVAL": "-1"},
            "APC_CURVE_INTERVAL: '-1' is no number from 0 to 604800. Example: APC_CURVE_INTERVAL=3600",
        ),
        ({"APC_CURVE_TOKEN": "9"}, "environment: APC_CURVE_TOKEN is unknown; did you mean APC_CURVE_TOKENS?"),
        (
            {"TAOTOKEN_BASE_URL": "https://gateway.example"},
            f"TAOTOKEN_API_KEY: is missing; a gateway takes {', '.join(TRIPLE)} together",
        ),
        (
            TRIPLE | {"TAOTOKEN_API_KEY": "sk demo"},
            "TAOTOKEN_API_KEY: holds a blank, a line break or a character that no key has; was it cut or pasted twice?",
        ),
        (
            {"APC_CANARY_INTERVAL": "0"},
            "APC_CANARY_INTERVAL: '0' is no number from 1 to 86400. Example: APC_CANARY_INTERVAL=60",
        ),
        (
            {"APC_CANARY_INTERVALL": "9"},
            "environment: APC_CANARY_INTERVALL is unknown; did you mean APC_CANARY_INTERVAL?",
        ),
        (
            {"VLLM_URL": "gpu"},
            "VLLM_URL: 'gpu' is no http or https address. Example: VLLM_URL=http://localhost:8000",
        ),
    ],
)
def test_wrong_settings(environ: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(environ)
    assert fault in raised.value.faults
    assert "sk " not in str(raised.value)


def test_keys_are_not_shown() -> None:
    assert "sk-" not in repr(load(TRIPLE | {"VLLM_API_KEY": "sk-2"}))
