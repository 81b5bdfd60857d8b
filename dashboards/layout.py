"""Where panels stand: Grafana's grid has 24 columns; a unit of height is 38 pixels."""

from collections.abc import Iterable
from typing import Final

from dashboards.panels import Panel, section

WIDTH: Final = 24
Sized = tuple[int, Panel]


def column(x: int, width: int, *stack: Sized) -> list[Panel]:
    """Return panels one below the other, each with its height; those of a tuple share the width."""
    y, placed = 0, []
    for height, content in stack:
        abreast = content if isinstance(content, tuple) else (content,)
        each = width // len(abreast)
        placed += [_at(panel, x + each * place, y, each, height) for place, panel in enumerate(abreast)]
        y += height
    return placed


def rows(*lines: tuple[str, int, Iterable[Sized]]) -> list[Panel]:
    """Return rows: a heading or none, a height, and panels from left to right, each with its width."""
    y, placed = 0, []
    for heading, height, panels in lines:
        if heading:
            placed.append(_at(section(heading), 0, y, WIDTH, 1))
            y += 1
        x = 0
        for width, panel in panels:
            placed.append(_at(panel, x, y, width, height))
            x += width
        y += height
    return placed


def _at(panel: Panel, x: int, y: int, width: int, height: int) -> Panel:
    panel.gridPos = {"x": x, "y": y, "w": width, "h": height}
    return panel
