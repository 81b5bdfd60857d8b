"""The faults of the simulated engine: what each does, and which values it takes."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from exporter.engine import FIELDS


def _switch(value: object) -> bool:
    return bool(value)


def _count(value: object) -> int:
    number = int(str(value))
    if number < 1:
        raise ValueError
    return number


def _seconds(value: object) -> float:
    number = float(str(value))
    if not 0 <= number < math.inf:
        raise ValueError
    return number


def _field(value: object) -> str:
    return next(known.name for known in FIELDS if known.name == value)


FAULTS: Final[Mapping[str, tuple[Callable[[object], Any], str]]] = {
    "restart": (_seconds, "once: counters and cache are cleared, connections refused for VALUE seconds"),
    "wedge": (_switch, "completions are accepted and never answered; /health and /metrics go on"),
    "dead": (_switch, "the engine core is dead: /metrics is frozen, /health says 503, completions 500"),
    "apc_off": (_switch, "prefix caching is off"),
    "blocks": (_count, "the cache has VALUE blocks"),
    "block_size": (_count, "a block has VALUE tokens"),
    "spec_decode": (_switch, "a drafter gives up the last block of each hit"),
    "lookup_skipped": (_switch, "no prompt is looked up, as with prompt_logprobs"),
    "null_details": (_switch, "prompt_tokens_details is null"),
    "no_usage": (_switch, "no usage is sent"),
    "buffered": (_switch, "a stream is sent in one piece at its end"),
    "truncated_stream": (_switch, "a stream breaks off after its first token"),
    "slow_first_token": (_seconds, "the first token takes VALUE seconds more"),
    "error_in_200": (_switch, "completions: 200 with an error in the body"),
    "rate_limited": (_switch, "completions: 429 with Retry-After"),
    "server_error": (_switch, "completions: 500"),
    "unauthorized": (_switch, "/v1: 401"),
    "not_found": (_switch, "/v1: 404, as under a wrong base URL"),
    "login_page": (_switch, "/v1: 302 to a login page"),
    "no_metrics": (_switch, "/metrics has no series of the engine, as with --disable-log-stats"),
    "empty_metrics": (_switch, "/metrics is empty"),
    "metrics_500": (_switch, "/metrics: 500"),
    "metrics_html": (_switch, "/metrics is a web page"),
    "slow_metrics": (_seconds, "/metrics takes VALUE seconds"),
    "no_kv_metrics": (_switch, "/metrics lacks the kv_block histograms, as without --kv-cache-metrics"),
    "rename": (_field, "/metrics lacks the field VALUE of exporter/engine.py, as after a rename"),
}


def checked_faults(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values as the faults take them, None for off. Raise ValueError."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in FAULTS:
            raise ValueError(f"no fault {name!r}; there are {', '.join(FAULTS)}")
        convert, meaning = FAULTS[name]
        try:
            checked[name] = None if value is None or value is False else convert(value)
        except (ValueError, StopIteration):
            raise ValueError(f"{name}={value}: {meaning}") from None
    return checked
