"""Cycles and verdicts, for a person as text and for a script as plain data."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from probes import logs
from probes.canary import Cycle, Sent
from probes.doctor import Report
from probes.outcome import Failure
from probes.verdict import Severity, Verdict

MARKS = {
    Severity.FAULT: ("✗", "bold red"),
    Severity.WARNING: ("!", "bold yellow"),
    Severity.NOTICE: ("i", "cyan"),
    Severity.OK: ("✓", "bold green"),
    Severity.UNKNOWN: ("?", "magenta"),
    Severity.INFO: ("·", "dim"),
}


def cycle_data(cycle: Cycle, verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return a cycle and its verdicts; seconds and tokens."""
    return {
        "target": cycle.target,
        "started_at": cycle.started_at,
        "result": cycle.result,
        "unit_tokens": cycle.unit,
        "error": _error(cycle.failure),
        "results": [_sent(cycle, sent) for sent in cycle.sent],
        "verdicts": [verdict_data(verdict) for verdict in verdicts],
    }


def report_data(report: Report) -> dict[str, Any]:
    """Return what the doctor saw and concluded."""
    return {
        "target": report.target,
        "steps": [{"step": name, "ok": good, "seen": seen} for name, good, seen in report.steps],
        "cycles": [cycle_data(cycle, ()) for cycle in report.cycles],
        "verdicts": [verdict_data(verdict) for verdict in report.verdicts],
        "window": report.window_note or None,
        "log": report.log_note or None,
    }


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict."""
    return {
        "code": verdict.code,
        "severity": verdict.severity.name.lower(),
        "sentence": verdict.sentence,
        "remedy": verdict.remedy,
        "evidence": dict(verdict.numbers),
    }


def cycle_table(cycle: Cycle) -> Table:
    """Return a cycle's requests as a small table."""
    table = Table(title=f"{cycle.target}: one canary cycle", title_justify="left")
    table.add_column("arm")
    table.add_column("rank")
    for column in ("TTFT ms", "prompt", "cached"):
        table.add_column(column, justify="right")
    table.add_column("outcome", overflow="fold")
    for sent in cycle.sent:
        result, cached = sent.result, cycle.cached(sent.result)
        failure = result.failure
        table.add_row(
            sent.planned.arm if sent.planned.measures else "calibration",
            sent.planned.rank or "",
            f"{result.ttft * 1000:.1f}" if result.ttft is not None else "",
            str(result.prompt_tokens or ""),
            str(cached) if cached is not None else "" if failure else "not told",
            Text(f"{failure.error_class}: {failure.message}" if failure else ", ".join(sorted(result.marks)) or "ok"),
        )
    return table


def step_line(name: str, good: bool, seen: str) -> Text:
    """Return one step of the doctor."""
    mark, style = ("✓", "green") if good else ("✗", "red")
    return Text.assemble("  ", (mark, style), f" {name:<26} ", (seen, "dim"))


def verdict_lines(verdicts: Iterable[Verdict]) -> list[RenderableType]:
    """Return verdicts as a sentence each, and what to type."""
    lines: list[RenderableType] = []
    for verdict in verdicts:
        mark, style = MARKS[verdict.severity]
        lines.append(Text.assemble((f"{mark} {verdict.code}", style), f"  {verdict.sentence}"))
        if verdict.severity not in {Severity.OK, Severity.INFO}:
            lines.append(Text.assemble("  What to do: ", (verdict.remedy, "bold")))
    return lines


def note_lines(report: Report) -> list[RenderableType]:
    """Return the window's figures, the log's own as a small time line, and how the two differ."""
    lines: list[RenderableType] = [Text(f"  {report.window_note}")] if report.window_note else []
    if report.log is not None:
        rows = logs.timeline(report.log.rates)
        lines += [Text(f"  log, engine {row.engine or '?'}: {row.spark}  {row.since} to {row.until}") for row in rows]
        lines.append(Text(f"  {report.log_note}"))
    return lines


def console() -> Console:
    """Return where a person reads; without colours and at a fixed width where no terminal is."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=120)


def _sent(cycle: Cycle, sent: Sent) -> dict[str, Any]:
    planned, result = sent.planned, sent.result
    return {
        "arm": planned.arm if planned.measures else "calibration",
        "rank": planned.rank,
        "ttft_seconds": result.ttft,
        "total_seconds": result.total,
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "cached_tokens": cycle.cached(result),
        "cached_state": result.cached_state,
        "marks": sorted(result.marks),
        "dropped": list(result.dropped),
        "error": _error(result.failure),
    }


def _error(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "class": failure.error_class,
        "message": failure.message,
        "status": failure.status,
        "retry_after_seconds": failure.retry_after,
        "remedy": failure.remedy,
    }
