"""What the stack's own Prometheus says of each target, a line each: the dashboards' first figures in a terminal."""

import http
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlencode

from native import web
from native.report import table

HOUR: Final = 3600  # seconds
STEP: Final = 120  # seconds of a sparkline that a character stands for
UP: Final = "max by (target) (apc_engine_up)"
KNOWN: Final = "group by (target) (apc_engine_up or apc_canary_interval_seconds)"  # a gateway has a canary alone
VERDICT: Final = "target:apc_verdict:current"
# There once a whole window has been seen: before, little traffic is a young window and no finding.
LOOKED_UP: Final = "sum by (target) (engine:apc_lookup_tokens:rate5m and engine:apc_lookup_tokens:rate5m offset 5m)"
HIT: Final = "target:apc_organic_hit:ratio_rate5m"
TTFT: Final = 'target:apc_canary_ttft_seconds:median15m{{arm="{arm}"}}'
BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.,:-=+#"
HEAD: Final = ("TARGET", "VERDICT", "USERS' HIT RATE", "LAST HOUR", "FIRST TOKEN: CACHED", "NOT CACHED")
Series = list[dict[str, Any]]
Ask = Callable[..., Series]


class NoAnswerError(Exception):
    """Prometheus does not answer, or not with figures; says where it was asked."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A target's figures; what is not known is None. Ratios 0..1, over five minutes, without the canary's; seconds."""

    target: str
    up: bool | None  # None: a gateway, which has no metrics
    verdicts: tuple[str, ...]
    looked_up: float | None  # tokens/s, the canary's among them
    hit_ratio: float | None
    last_hour: tuple[float | None, ...]  # hit ratios, the oldest first
    cached_ttft: float | None
    uncached_ttft: float | None


def at(url: str) -> list[Figures]:
    """Return the figures of every target that a Prometheus knows, by name; raises NoAnswerError.

    No URL stands for no Prometheus.
    """
    if not url:
        raise NoAnswerError("there is no Prometheus to ask")

    def ask(query: str, path: str = "query", **params: str) -> Series:
        try:
            answer = web.get(f"{url.rstrip('/')}/api/v1/{path}?{urlencode({'query': query, **params})}")
            if answer.status != http.HTTPStatus.OK:
                raise NoAnswerError(f"Prometheus at {url} answers {answer.status}")
            result: Series = json.loads(answer.text)["data"]["result"]
        except (*web.FAILURES, ValueError, LookupError, TypeError) as error:
            raise NoAnswerError(f"Prometheus at {url} does not answer: {error or type(error).__name__}") from error
        return result

    return collect(ask, time.time())


def collect(ask: Ask, now: float) -> list[Figures]:
    """Put the answers to queries together, as of a Unix time."""
    times = [now - HOUR + STEP * number for number in range(1, HOUR // STEP + 1)]
    span = {"start": f"{times[0]:.3f}", "end": f"{times[-1]:.3f}", "step": str(STEP)}
    up, looked_up, hit = (_by_target(ask(query)) for query in (UP, LOOKED_UP, HIT))
    cached, uncached = (_by_target(ask(TTFT.format(arm=arm))) for arm in ("repeat", "control"))
    verdicts = [(series["metric"]["target"], series["metric"]["verdict"]) for series in ask(VERDICT)]
    history = {series["metric"]["target"]: series["values"] for series in ask(HIT, "query_range", **span)}
    return [
        Figures(
            target=target,
            up=bool(up[target]) if target in up else None,
            verdicts=tuple(sorted(verdict for of, verdict in verdicts if of == target)),
            looked_up=looked_up.get(target),
            hit_ratio=hit.get(target),
            last_hour=_aligned(history.get(target, []), times),
            cached_ttft=cached.get(target),
            uncached_ttft=uncached.get(target),
        )
        for target in sorted(_by_target(ask(KNOWN)))
    ]


def text(url: str, encoding: str) -> str:
    """Return a row for each target, or one line that says why there is none."""
    try:
        found = at(url)
    except NoAnswerError as error:
        return f"  Targets: {error}"
    return table([HEAD, *(row(figures, encoding) for figures in found)]) if found else "  Targets: none is scraped yet"


def data(programs: Iterable[dict[str, Any]], url: str) -> dict[str, Any]:
    """Return a stack for scripts: its programs, its targets, and why Prometheus does not tell of them, if so."""
    stack: dict[str, Any] = {"programs": list(programs), "targets": None, "error": None}
    try:
        stack["targets"] = [asdict(figures) for figures in at(url)]
    except NoAnswerError as error:
        stack["error"] = str(error)
    return stack


def row(figures: Figures, encoding: str) -> tuple[str, ...]:
    """Return a target's cells. No traffic is told only where lookups are counted; else nothing is known."""
    idle = "-" if figures.looked_up is None else "no traffic"
    return (
        figures.target,
        ", ".join(figures.verdicts) or "-",
        idle if figures.hit_ratio is None else f"{figures.hit_ratio:.1%}",
        sparkline(figures.last_hour, encoding),
        _ms(figures.cached_ttft),
        _ms(figures.uncached_ttft),
    )


def sparkline(ratios: Sequence[float | None], encoding: str) -> str:
    """Draw ratios from 0 to 1, a character each and a blank where there is none; in ASCII where need be."""
    if all(ratio is None for ratio in ratios):
        return "-"
    try:
        BLOCKS.encode(encoding)
        blocks = BLOCKS
    except (UnicodeEncodeError, LookupError):
        blocks = ASCII_BLOCKS
    top = len(blocks) - 1
    return "".join(" " if r is None else blocks[round(min(max(r, 0.0), 1.0) * top)] for r in ratios)


def _by_target(answer: Series) -> dict[str, float]:
    return {series["metric"]["target"]: float(series["value"][1]) for series in answer}


def _aligned(samples: Iterable[Sequence[Any]], times: Sequence[float]) -> tuple[float | None, ...]:
    """Give each time its sample; Prometheus leaves out those that there are not."""
    known = {round((float(at) - times[0]) / STEP): float(value) for at, value in samples}
    return tuple(known.get(number) for number in range(len(times)))


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f} ms"
