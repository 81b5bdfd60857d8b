"""Environment -> what the canary is to ask, how often, and at what cost: engines, and an OpenAI-compatible gateway."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from exporter.checks import Checks, ConfigError, Setting, values
from exporter.config import Target
from exporter.config import load as load_engines
from probes.client import Endpoint
from probes.outcome import Names

PORT: Final = Setting("APC_PROBE_PORT", "9392", "port to listen on")
INTERVAL: Final = Setting("APC_CANARY_INTERVAL", "60", "seconds between two cycles on an engine")
BUDGET: Final = Setting(
    "APC_CANARY_TOKENS_PER_MINUTE", "20000", "tokens that the canary may use in a minute, per engine"
)
TIMEOUT: Final = Setting("APC_CANARY_TIMEOUT", "30", "seconds for one request of the canary")
FIRST_TOKEN: Final = Setting("APC_CANARY_FIRST_TOKEN_TIMEOUT", "20", "seconds for its first token")
CURVE_INTERVAL: Final = Setting(
    "APC_CURVE_INTERVAL", "3600", "seconds between two sweeps of TTFT by shared part of the prompt; 0: none"
)
CURVE_BUDGET: Final = Setting(
    "APC_CURVE_TOKENS", "100000", "tokens that a sweep may use; one that takes more is not made"
)
GATEWAY_INTERVAL: Final = Setting(
    "GATEWAY_INTERVAL", "600", "seconds between two cycles on the gateway, which costs money"
)
GATEWAY_BUDGET: Final = Setting("GATEWAY_TOKENS_PER_MINUTE", "8000", "tokens that the canary may use in a minute there")
GATEWAY_CURVE_INTERVAL: Final = Setting(
    "GATEWAY_CURVE_INTERVAL", "0", "seconds between two sweeps through the gateway, which cost money; 0: none"
)
SETTINGS: Final = (
    Setting("APC_PROBE_HOST", "127.0.0.1", "address to listen on"),
    PORT,
    INTERVAL,
    BUDGET,
    TIMEOUT,
    FIRST_TOKEN,
    CURVE_INTERVAL,
    CURVE_BUDGET,
    Setting("GATEWAY_BASE_URL", "", "an OpenAI-compatible gateway, with or without /v1; or TAOTOKEN_BASE_URL"),
    Setting("GATEWAY_API_KEY", "", "its key; or TAOTOKEN_API_KEY"),
    Setting("GATEWAY_MODEL", "", "the model id there; or TAOTOKEN_MODEL"),
    GATEWAY_INTERVAL,
    GATEWAY_BUDGET,
    GATEWAY_CURVE_INTERVAL,
)
GATEWAYS: Final = ("GATEWAY", "TAOTOKEN")
OWN_PREFIXES: Final = ("APC_PROBE_", "APC_CANARY_", "APC_CURVE_")


@dataclass(frozen=True, slots=True)
class CanaryTarget:
    """A server to send canaries to. `engine` is what to scrape beside it; None where only its API is in reach."""

    name: str
    endpoint: Endpoint
    names: Names
    engine: Target | None
    interval: float  # seconds
    tokens_per_minute: int
    timeout: float  # seconds, of one request
    first_token_timeout: float
    curve_interval: float = 0.0  # seconds; 0: no sweeps
    curve_tokens: int = 0  # of a sweep

    @property
    def budget_setting(self) -> str:
        """Name of the setting that `tokens_per_minute` comes from."""
        return (BUDGET if self.engine else GATEWAY_BUDGET).name


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the probe can be told."""

    targets: tuple[CanaryTarget, ...]
    host: str
    port: int


def load(environ: Mapping[str, str]) -> Settings:
    """Read the settings; raises ConfigError with every fault at once."""
    checks = Checks()
    value = values(SETTINGS, environ)
    known = [setting.name for setting in SETTINGS]
    checks.known([name for name in environ if name.startswith(OWN_PREFIXES)], known, "environment")
    interval = checks.number(INTERVAL, value[INTERVAL.name], 1, 86_400)
    gateway_interval = checks.number(GATEWAY_INTERVAL, value[GATEWAY_INTERVAL.name], 1, 86_400)
    budget = int(checks.number(BUDGET, value[BUDGET.name], 100, 1e9))
    gateway_budget = int(checks.number(GATEWAY_BUDGET, value[GATEWAY_BUDGET.name], 100, 1e9))
    limits = (
        checks.number(TIMEOUT, value[TIMEOUT.name], 0.1, 3600),
        checks.number(FIRST_TOKEN, value[FIRST_TOKEN.name], 0.1, 3600),
    )
    sweeps, gateway_sweeps = (
        checks.number(setting, value[setting.name], 0, 604_800) for setting in (CURVE_INTERVAL, GATEWAY_CURVE_INTERVAL)
    )
    sweep_budget = int(checks.number(CURVE_BUDGET, value[CURVE_BUDGET.name], 100, 1e9))
    port = checks.port(PORT, value[PORT.name])
    targets = [
        CanaryTarget(
            engine.name,
            Endpoint(engine.url, engine.api_key, engine.model, engine.ca_file),
            Names(),
            engine,
            interval,
            budget,
            *limits,
            sweeps,
            sweep_budget,
        )
        for engine in _engines(environ, checks)
    ]
    for prefix in GATEWAYS:
        endpoint = _gateway(prefix, environ, checks)
        if endpoint:
            names = Names(f"{prefix}_BASE_URL", f"{prefix}_API_KEY", f"{prefix}_MODEL", "")
            name = prefix.lower()
            costs = (gateway_interval, gateway_budget, *limits, gateway_sweeps, sweep_budget)
            targets.append(CanaryTarget(name, endpoint, names, None, *costs))
    names_seen = [target.name for target in targets]
    checks.faults += [
        f"two targets have the name {name!r}; rename the engine"
        for name in GATEWAYS
        if names_seen.count(name.lower()) > 1
    ]
    checks.done()
    return Settings(tuple(targets), value["APC_PROBE_HOST"], port)


def only_server(environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the environment for the one server that a call names; nothing there may lead to another. "" names none."""
    if not url:
        return dict(environ)
    return {n: v for n, v in environ.items() if n not in {"APC_TARGETS", "VLLM_METRICS_URL"}} | {"VLLM_URL": url}


def _engines(environ: Mapping[str, str], checks: Checks) -> tuple[Target, ...]:
    try:
        return load_engines(environ).targets
    except ConfigError as error:
        checks.faults += error.faults
        return ()


def _gateway(prefix: str, environ: Mapping[str, str], checks: Checks) -> Endpoint | None:
    """Read a gateway's triple; it is all there, or not there at all."""
    names = [f"{prefix}_{part}" for part in ("BASE_URL", "API_KEY", "MODEL")]
    triple = [environ.get(name, "").strip() for name in names]
    if not any(triple):
        return None
    missing = [name for name, text in zip(names, triple, strict=True) if not text]
    checks.faults += [f"{name}: is missing; a gateway takes {', '.join(names)} together" for name in missing]
    if missing:
        return None
    url, key, model = triple
    return Endpoint(checks.url(names[0], url), checks.key(names[1], key), model)
