"""Rules and routes whose time runs faster: every duration is divided, so that ratios are those of production."""

import re
from typing import Final

# Where an expression has a window's length in seconds as a plain number: the text around it, and the number.
SECONDS: Final = (
    ("requests:rate5m * {}", 300),
    ("requests:rate2m * {}", 120),
    ("cycle_tokens:ratio_rate1h / {}", 300),
    ("apc_canary_interval_seconds > {}", 60),
    ("apc_canary_interval_seconds > {}", 900),
    ("offset 1h) * 0 + {}", 3600),
    ("apc_engine_start_time_seconds >= 0) < {}", 600),
)
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"\b(\d+)(ms|[smhdw])\b")


def shorten(text: str, times: int) -> str:
    """Divide every duration in the text of a YAML file; `rate5m` in a name is none."""

    def divide(found: re.Match[str]) -> str:
        return f"{max(1, round(int(found[1]) * _UNITS[found[2]] / times))}ms"

    for around, number in SECONDS:
        text = text.replace(around.format(number), around.format(f"{number / times:g}"))
    return _DURATION.sub(divide, text)
