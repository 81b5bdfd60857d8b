"""Evidence -> ordered verdicts: what is wrong with prefix caching, on which numbers that rests, and what to type.

A wrong cause is worse than none: where the evidence does not suffice the verdict is `unknown` and says what is
missing. Labels of the engine are hints; what was observed decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Code(StrEnum):
    """The verdicts. The values are those of the label `verdict`."""

    HEALTHY = "healthy"
    NO_TRAFFIC = "no_traffic"
    STARTING_OR_DOWN = "starting_or_down"
    DNS = "dns"
    LOCALHOST_IN_CONTAINER = "localhost_in_container"
    BOUND_TO_LOOPBACK = "bound_to_loopback"
    AUTH_LOGIN_PAGE = "auth_login_page"
    PROXY_INTERCEPTED = "proxy_intercepted"
    CANARY_FAILING = "canary_failing"
    METRICS_UNUSABLE = "metrics_unusable"
    APC_DISABLED = "apc_disabled"
    LOOKUP_SKIPPED = "lookup_skipped"
    ENABLED_BUT_NEVER_REUSED = "enabled_but_never_reused"
    PREFIX_SHORTER_THAN_BLOCK = "prefix_shorter_than_block"
    PREFIX_VARIES = "prefix_varies"
    VOLATILE_PROMPT_HEAD = "volatile_prompt_head"
    DOUBLE_BOS = "double_bos"
    DATE_ROLLOVER = "date_rollover"
    CANARY_EVICTED = "canary_evicted"
    DP_SPREAD = "dp_spread"
    SPEC_DECODE_DROPS_UNIT = "spec_decode_drops_unit"
    SPEC_DECODE_NO_REUSE = "spec_decode_no_reuse"
    BLOCK_LABEL_UNRELIABLE = "block_label_unreliable"
    BOUNDARY_LAST_BLOCK = "boundary_last_block"
    PREEMPTION_INFLATION = "preemption_inflation"
    EXTERNAL_TIER_ONLY = "external_tier_only"
    SIGNALS_CONTRADICT = "signals_contradict"
    USAGE_DETAILS_OFF = "usage_details_off"
    REUSE_SAVES_LITTLE = "reuse_saves_little"
    MAX_TOKENS_HIDES_IT = "max_tokens_hides_it"
    UNKNOWN = "unknown"


class Severity(IntEnum):
    """How much it matters; the first to be told is the lowest."""

    FAULT = 0  # reuse does not work, or nothing can be known
    WARNING = 1  # reuse works, and something takes it away
    NOTICE = 2  # a loss that is explained, or a signal that is missing
    OK = 3
    UNKNOWN = 4
    INFO = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding: a sentence, the numbers that it rests on, and a remedy that can be typed."""

    code: Code
    severity: Severity
    sentence: str
    remedy: str
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)


def fault(code: Code, sentence: str, remedy: str, **numbers: float | str) -> Verdict:
    """Return a verdict that reuse does not work."""
    return Verdict(code, Severity.FAULT, sentence, remedy, numbers)


def warning(code: Code, sentence: str, remedy: str, **numbers: float | str) -> Verdict:
    """Return a verdict that something takes reuse away."""
    return Verdict(code, Severity.WARNING, sentence, remedy, numbers)


def notice(code: Code, sentence: str, remedy: str, **numbers: float | str) -> Verdict:
    """Return a verdict that explains a loss."""
    return Verdict(code, Severity.NOTICE, sentence, remedy, numbers)


def info(code: Code, sentence: str, remedy: str = "nothing to do", **numbers: float | str) -> Verdict:
    """Return a remark."""
    return Verdict(code, Severity.INFO, sentence, remedy, numbers)
