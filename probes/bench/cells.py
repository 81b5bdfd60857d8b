"""The report's tables as text: a heading, column names and rows. For the terminal and the page alike. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from probes.bench.capacity import Round
from probes.bench.compare import Change
from probes.bench.counters import Mean, Window
from probes.bench.report import Report
from probes.bench.stats import Estimate
from probes.bench.summary import Row

TITLES: Final = {
    "article": "Five rounds over one system prompt",
    "floor": "Cold and warm requests apart",
    "length": "By length of the prefix",
    "share": "By share of the prompt that is cached",
    "load": "By number of clients",
    "chat": "A chat, turn by turn",
}
PLACES: Final = {
    "article": "round",
    "floor": "tokens",
    "length": "tokens",
    "share": "shared %",
    "load": "clients",
    "chat": "turn",
}


@dataclass(frozen=True, slots=True)
class Cells:
    """A table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(report: Report) -> list[Cells]:
    """Return the tables that have rows: changes first, then each mode, then the engine's account."""
    found = [_changes(report.changes)]
    found += [_mode(mode, [row for row in report.rows if row.mode == mode]) for mode in TITLES]
    found.append(_rounds(report.rounds))
    found.append(_windows(report.windows))
    return [table for table in found if table.rows]


def ms(figure: Estimate | None) -> str:
    """Return a time with its interval, in ms."""
    if figure is None:
        return "-"
    interval = "" if figure.low is None else f" [{figure.low * 1000:.1f}, {(figure.high or 0) * 1000:.1f}]"
    return f"{figure.value * 1000:.1f}{interval}"


def per_cent(figure: Estimate) -> str:
    """Return a change with its interval, in per cent."""
    interval = "" if figure.low is None else f" [{figure.low:+.1%}, {figure.high or 0:+.1%}]"
    return f"{figure.value:+.1%}{interval}"


def _changes(changes: Sequence[Change]) -> Cells:
    columns = "mode", "at", "what", "against", "ms", "against ms", "change [95 %]", "n"
    rows = [
        (
            one.mode,
            f"{one.at:g}" if one.at else "",
            one.what,
            one.against,
            f"{one.ours * 1000:.1f}",
            f"{one.theirs * 1000:.1f}",
            per_cent(one.change),
            str(one.change.n),
        )
        for one in changes
    ]
    return Cells("Changes", columns, tuple(rows))


def _mode(mode: str, rows: Sequence[Row]) -> Cells:
    load = mode == "load"
    columns = (
        *(PLACES[mode], "arm", "kind", "TTFT ms [95 %]", "p95 ms", "total ms [95 %]"),
        *("cached", "prompt", *(("per second",) if load else ()), "n"),
    )
    cells = [
        (
            f"{row.at:g}",
            row.arm,
            row.kind,
            ms(row.ttft),
            _number(None if row.ttft_p95 is None else row.ttft_p95 * 1000, 1),
            ms(row.total),
            _number(row.cached),
            _number(row.prompt),
            *((_number(row.per_second, 1),) if load else ()),
            f"{row.requests - row.failed}" + (f" ({row.failed} failed)" if row.failed else ""),
        )
        for row in sorted(rows, key=lambda row: row.at)
    ]
    return Cells(TITLES[mode], columns, tuple(cells))


def _rounds(rounds: Sequence[Round]) -> Cells:
    columns = (
        *("prefixes", "cold TTFT ms [95 %]", "again TTFT ms [95 %]", "prompt", "cached", "by the engine"),
        *("blocks a request", "n"),
    )
    rows = [
        (
            str(one.prefixes),
            ms(one.cold),
            ms(one.again),
            _number(one.prompt),
            _ratio(one.by_usage),
            _ratio(one.by_counters),
            _number(one.blocks, 1),
            str(one.again.n if one.again else 0),
        )
        for one in rounds
    ]
    title = "Prefixes asked in turn, then once more (cached, blocks reallocated: of the second pass; n: repetitions)"
    return Cells(title, columns, tuple(rows))


def _windows(windows: Sequence[Window]) -> Cells:
    columns = (
        *("stage", "arms", "requests", "hit rate", "by usage", "KV peak", "blocks", "preempted"),
        *("TTFT", "queue", "prefill", "whole"),
    )
    rows = [
        (
            one.stage,
            one.arms,
            str(one.sent_requests)
            if one.requests in (None, one.sent_requests)
            else f"{one.sent_requests}/{one.requests}",
            _ratio(one.hit_ratio),
            _ratio(one.usage_cached / one.sent_prompt if one.usage_cached is not None and one.sent_prompt else None),
            _ratio(one.peak_kv_usage),
            _number(one.reallocated_blocks),
            _number(one.preemptions),
            *(_mean(mean) for mean in (one.ttft, one.queue, one.prefill, one.e2e)),
        )
        for one in windows
        if one.sent_requests
    ]
    return Cells(
        "The engine's own account, stage by stage (blocks: reallocated; TTFT, queue, prefill, whole: means in ms)",
        columns,
        tuple(rows),
    )


def _mean(mean: Mean | None) -> str:
    return "-" if mean is None else f"{mean.value * 1000:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
