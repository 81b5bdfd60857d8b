"""Figures -> plots as inline SVG, without a library or a file beside them. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 44
COLOURS: Final = ("var(--a)", "var(--b)", "var(--c)", "var(--d)")
STEPS: Final = 5  # of the vertical axis


@dataclass(frozen=True, slots=True)
class Point:
    """A figure and its interval, if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one line."""

    name: str
    points: tuple[Point, ...]


def plot(title: str, x_label: str, y_label: str, lines: Sequence[Series], *, by_rank: bool = False) -> str:
    """Return a line plot from zero; `by_rank` sets the x values apart evenly, as for 1, 4, 16, 64."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    xs = sorted({point.x for line in lines for point in line.points})
    highest = max(point.high or point.y for line in lines for point in line.points) or 1.0
    step = _step(highest)
    top = step * math.ceil(highest / step)

    def across(x: float) -> float:
        share = xs.index(x) / max(len(xs) - 1, 1) if by_rank else (x - xs[0]) / ((xs[-1] - xs[0]) or 1)
        return LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for number in range(round(top / step) + 1):
        y = up(number * step)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number * step:g}</text>')
    shown = xs if by_rank else _apart(xs)
    for x in shown:
        label = f"{x:,.0f}"
        parts.append(f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="name" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    across_side = f'transform="rotate(-90 12 {HEIGHT / 2 - 14})" x="12" y="{HEIGHT / 2 - 14}"'
    parts.append(f'<text class="name" {across_side} text-anchor="middle">{escape(y_label)}</text>')
    for line, colour in zip(lines, COLOURS, strict=False):
        points = sorted(line.points, key=lambda point: point.x)
        path = " ".join(f"{across(point.x):.1f},{up(point.y):.1f}" for point in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in points:
            x = across(point.x)
            if point.low is not None and point.high is not None:
                ends = f'y1="{up(point.low):.1f}" y2="{up(point.high):.1f}"'
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="{colour}"/>')
            told = f"{line.name}: {point.x:,.0f} → {point.y:.1f}" + (
                f" [{point.low:.1f}, {point.high:.1f}]" if point.low is not None else ""
            )
            dot = f'<circle cx="{x:.1f}" cy="{up(point.y):.1f}" r="3.5" fill="{colour}">'
            parts.append(f"{dot}<title>{escape(told)}</title></circle>")
    parts.append("</svg>")
    keys = " ".join(
        f'<span style="color:{colour}">■</span> {escape(line.name)}'
        for line, colour in zip(lines, COLOURS, strict=False)
    )
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join(parts)}<p>{keys}</p></figure>"


def _step(highest: float) -> float:
    """Return the round number that divides the axis into a handful of steps."""
    rough = highest / STEPS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def _apart(xs: Sequence[float]) -> list[float]:
    """Return the values that leave room for their labels."""
    least = ((xs[-1] - xs[0]) or 1) / 12
    shown = [xs[0]]
    for x in xs[1:]:
        if x - shown[-1] >= least:
            shown.append(x)
    return shown
