"""A cycle for a person, as a table, and for a script, as JSON."""

from typing import Any

from rich.table import Table

from probes.canary import Cycle, Sent


def as_json(cycle: Cycle) -> dict[str, Any]:
    """Return a cycle as plain data; seconds and tokens."""
    return {
        "target": cycle.target,
        "started_at": cycle.started_at,
        "result": cycle.result,
        "unit_tokens": cycle.unit,
        "error": _error(cycle.failure),
        "results": [_sent(cycle, sent) for sent in cycle.sent],
        "verdicts": [],
    }


def as_table(cycle: Cycle) -> Table:
    """Return a cycle's requests as a small table."""
    table = Table(title=f"{cycle.target}: one canary cycle", title_justify="left")
    for column, justify in (
        ("arm", "left"),
        ("rank", "left"),
        ("TTFT ms", "right"),
        ("prompt", "right"),
        ("cached", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("outcome", overflow="fold")
    for sent in cycle.sent:
        result, cached = sent.result, cycle.cached(sent.result)
        table.add_row(
            sent.planned.arm if sent.planned.measures else "calibration",
            sent.planned.rank or "",
            f"{result.ttft * 1000:.1f}" if result.ttft is not None else "",
            str(result.prompt_tokens or ""),
            "not told" if cached is None and not result.failure else str("" if cached is None else cached),
            f"{result.failure.error_class}: {result.failure.message}"
            if result.failure
            else ", ".join(result.marks) or "ok",
        )
    return table


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


def _error(failure: Any) -> dict[str, Any] | None:  # noqa: ANN401
    if failure is None:
        return None
    return {
        "class": failure.error_class,
        "message": failure.message,
        "status": failure.status,
        "retry_after_seconds": failure.retry_after,
        "remedy": failure.remedy,
    }
