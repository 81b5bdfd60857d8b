"""The report as one HTML page that needs nothing beside it. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import Final

from probes.bench.cells import Cells, tables
from probes.bench.plot import Point, Series, plot
from probes.bench.report import Report
from probes.bench.stats import Estimate
from probes.bench.summary import Row

STYLE: Final = """
:root { color-scheme: light dark; --a: #0072b2; --b: #d55e00; --c: #009e73; --d: #cc79a7; --line: #8884 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
figure { margin: 1.5rem 0; max-width: 44rem } figcaption { font-weight: 600 }
svg text { font-size: 11px; fill: currentColor } svg .grid { stroke: var(--line) }
.warning { border-left: 4px solid var(--b); padding-left: .6rem } code { overflow-wrap: anywhere }
"""


def page(report: Report) -> str:
    """Return the page."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><title>Prefix caching bench</title>',
        f"<style>{STYLE}</style><h1>Prefix caching bench</h1>",
        f"<p>{escape(report.started_at)}, {report.seconds:g} s, {report.requests} of {report.planned} requests.</p>",
        "<p>Medians, [95 % bootstrap intervals], n = number of samples.</p>",
        f"<p><code>{escape(report.command)}</code></p>",
        *(f"<p>{escape(line)}</p>" for line in server_lines(report)),
        *(f'<p class="{"warning" if note.warning else "note"}">{escape(note.text)}</p>' for note in report.notes),
        *_plots(report),
        *(_table(table) for table in tables(report)),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def server_lines(report: Report) -> list[str]:
    """Return what each server is, a line each."""
    lines = []
    for arm, one in report.servers.items():
        facts = {
            "prefix caching": one.prefix_caching,
            "block size": one.block_size,
            "reuse unit": one.reuse_unit,
            "KV blocks": one.blocks,
        }
        told = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        what = f"{one.engine} {one.version}".rstrip() or "no engine's metrics in reach"
        lines.append(f"{arm}: {one.url}, {one.model or 'model not told'}, {what}{', ' if told else ''}{told}")
    return lines


def _plots(report: Report) -> list[str]:
    rows = report.rows
    return [
        plot(
            "TTFT against the share of the prompt that was cached",
            "cached, % of the prompt's tokens",
            "TTFT, ms",
            [Series("median", tuple(_points(_of(rows, "share"), _hit_percent)))],
        ),
        plot("Warm and cold by length", "prompt, tokens", "TTFT, ms", _arms(rows, "length", lambda row: row.prompt)),
        plot(
            "TTFT by number of clients",
            "clients",
            "TTFT, ms",
            [
                *(
                    replace(line, name=line.name.replace("warm", "p50"))
                    for line in _arms(rows, "load", lambda row: row.at)
                ),
                *(
                    Series(f"{arm}, p95", tuple(_p95(_of(rows, "load", arm))))
                    for arm in ("on", "off")
                    if _of(rows, "load", arm)
                ),
            ],
            by_rank=True,
        ),
        plot("Five rounds", "round", "TTFT, ms", _by_arm(rows, "article"), by_rank=True),
        plot("A chat", "turn", "TTFT, ms", _by_arm(rows, "chat"), by_rank=True),
        plot(
            "Prefixes asked in turn: TTFT",
            "prefixes",
            "TTFT, ms",
            _arms(rows, "prefixes", lambda row: row.at),
            by_rank=True,
        ),
        plot(
            "Prefixes asked in turn: what is found again", "prefixes", "cached, %", _found_again(report), by_rank=True
        ),
    ]


def _found_again(report: Report) -> list[Series]:
    points = [Point(one.prefixes, 100 * one.cached) for one in report.rounds if one.cached is not None]
    return [Series("cached of the prompt's tokens", tuple(points))]


def _of(rows: Sequence[Row], mode: str, arm: str = "", kind: str = "") -> list[Row]:
    return [row for row in rows if row.mode == mode and arm in ("", row.arm) and kind in ("", row.kind)]


def _arms(rows: Sequence[Row], mode: str, place: Callable[[Row], float | None]) -> list[Series]:
    groups = sorted({(row.arm, row.kind) for row in _of(rows, mode)}, reverse=True)
    return [Series(f"{arm}, {kind}", tuple(_points(_of(rows, mode, arm, kind), place))) for arm, kind in groups]


def _by_arm(rows: Sequence[Row], mode: str) -> list[Series]:
    arms = sorted({row.arm for row in _of(rows, mode)}, reverse=True)
    return [Series(arm, tuple(_points(_of(rows, mode, arm), lambda row: row.at))) for arm in arms]


def _points(rows: Sequence[Row], place: Callable[[Row], float | None]) -> list[Point]:
    return [_point(x, row.ttft) for row in rows if row.ttft and (x := place(row)) is not None]


def _point(x: float, figure: Estimate) -> Point:
    low, high = (None if bound is None else bound * 1000 for bound in (figure.low, figure.high))
    return Point(x, figure.value * 1000, low, high)


def _p95(rows: Sequence[Row]) -> list[Point]:
    return [Point(row.at, row.ttft_p95 * 1000) for row in rows if row.ttft_p95 is not None]


def _hit_percent(row: Row) -> float | None:
    return 100 * row.cached / row.prompt if row.cached is not None and row.prompt else None


def _table(table: Cells) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>{body}</table>"
