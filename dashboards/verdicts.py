"""The probe's verdicts in words a tired person reads at a glance, and how bad each is."""

from enum import StrEnum
from typing import Final

from probes.verdict import Code


class State(StrEnum):
    """What a colour says; the values are Grafana's names of colours."""

    NONE = "text"  # no judgement
    GOOD = "green"
    NOTICE = "yellow"
    WARN = "orange"
    BAD = "red"


# From the one that matters least to the one to be shown first. Its place is the number that stands for it in a query.
WORDS: Final[tuple[tuple[Code, State, str], ...]] = (
    (Code.MAX_TOKENS_HIDES_IT, State.GOOD, "Answers outweigh prefill"),
    (Code.HEALTHY, State.GOOD, "Reuse works"),
    (Code.NO_TRAFFIC, State.GOOD, "Works; no traffic"),
    (Code.USAGE_DETAILS_OFF, State.NOTICE, "Usage details are off"),
    (Code.BOUNDARY_LAST_BLOCK, State.NOTICE, "Last block is computed again"),
    (Code.DATE_ROLLOVER, State.NOTICE, "Date in prompt has changed"),
    (Code.BLOCK_LABEL_UNRELIABLE, State.NOTICE, "Block size label is wrong"),
    (Code.SPEC_DECODE_DROPS_UNIT, State.NOTICE, "Speculation drops one unit"),
    (Code.REUSE_SAVES_LITTLE, State.NOTICE, "Reuse saves little"),
    (Code.UNKNOWN, State.NOTICE, "Unknown: ask the doctor"),
    (Code.EXTERNAL_TIER_ONLY, State.WARN, "Only the external tier hits"),
    (Code.PREEMPTION_INFLATION, State.WARN, "Preemptions inflate the rate"),
    (Code.CANARY_EVICTED, State.WARN, "Prefixes are evicted"),
    (Code.DP_SPREAD, State.WARN, "Ranks do not share prefixes"),
    (Code.DOUBLE_BOS, State.WARN, "Two BOS tokens at the head"),
    (Code.VOLATILE_PROMPT_HEAD, State.WARN, "Prompt head changes"),
    (Code.PREFIX_VARIES, State.WARN, "Users' prefixes vary"),
    (Code.PREFIX_SHORTER_THAN_BLOCK, State.WARN, "Prefix shorter than a block"),
    (Code.METRICS_UNUSABLE, State.WARN, "Metrics cannot be used"),
    (Code.LOOKUP_SKIPPED, State.WARN, "Lookups are skipped"),
    (Code.SIGNALS_CONTRADICT, State.BAD, "Signals contradict"),
    (Code.SPEC_DECODE_NO_REUSE, State.BAD, "Speculation stops reuse"),
    (Code.ENABLED_BUT_NEVER_REUSED, State.BAD, "On, but never reused"),
    (Code.APC_DISABLED, State.BAD, "Prefix caching is off"),
    (Code.CANARY_FAILING, State.BAD, "Canary's requests fail"),
    (Code.AUTH_LOGIN_PAGE, State.BAD, "A login page answers"),
    (Code.PROXY_INTERCEPTED, State.BAD, "A proxy stands between"),
    (Code.BOUND_TO_LOOPBACK, State.BAD, "Engine listens on loopback"),
    (Code.LOCALHOST_IN_CONTAINER, State.BAD, "localhost is the container"),
    (Code.DNS, State.BAD, "Engine's name is unknown"),
    (Code.STARTING_OR_DOWN, State.BAD, "Engine is starting or down"),
)
