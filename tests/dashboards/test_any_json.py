"""Any JSON gives faults, never an exception: our dashboards with one part lost or replaced, and what is made up."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dashboards import build
from dashboards.lint import lint, surroundings

AROUND = surroundings()
BOARDS = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(build.OUT.glob("apc-*.json"))]
# Nothing below is looked at.
UNSEEN = {"mappings", "thresholds", "transformations", "links", "matcher", "color", "organize", "tooltip", "legend"}
LOST = object()
INSTEAD: tuple[Any, ...] = (LOST, None, "1", [None, ["a"]], {"a": []}, 1.5, True)


def paths(value: Any, path: tuple[Any, ...] = (), shape: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield each way to a part, and its shape, which is the same for all items of a list."""
    yield shape, path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        if key not in UNSEEN:
            yield from paths(child, (*path, key), (*shape, key if isinstance(value, dict) else "*"))


def replaced(board: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a board with another value in one place; the rest is shared."""
    if not path:
        return value
    made = copy.copy(board)
    if path[1:] or value is not LOST:
        made[path[0]] = replaced(board[path[0]], path[1:], value)
    else:
        del made[path[0]]
    return made


def test_one_part_lost_or_replaced() -> None:
    kinds = {panel["type"]: panel for board in BOARDS for panel in board["panels"]}
    row = kinds["row"] | {"panels": [kinds["stat"] | {"id": 900}]}
    board = BOARDS[0] | {"panels": [*kinds.values(), row], "rows": [{"panels": [kinds["timeseries"]]}]}
    for target in (target for panel in board["panels"] for target in panel.get("targets", ())):
        target["expr"] = "sum(rate(apc_preemptions_total[5m]))"  # the short ones take the least time
    ways = {shape: path for shape, path in paths(board) if shape}
    assert ("panels", "*", "targets", "*", "expr") in ways
    for path in ways.values():
        for value in INSTEAD:
            found = lint(replaced(board, path, value), AROUND)
            assert all(isinstance(fault, str) for fault in found), (path, value)


KEYS = st.sampled_from(
    [
        *("panels", "rows", "id", "uid", "type", "targets", "expr", "datasource", "gridPos", "x", "w", "templating"),
        *("list", "name", "query", "current", "value", "annotations", "target", "fieldConfig", "defaults", "overrides"),
    ]
)
WORDS = st.lists(
    st.sampled_from(
        [
            *"()[]{}\"'`:/=,#@\n\ud800",
            *(
                "sum",
                "rate",
                "by",
                "5m",
                "$x",
                "${x",
                "[[x]]",
                "a",
                "offset",
                "or",
                "vector(0)",
                "=~",
                "1",
                "bool",
                "on",
            ),
        ]
    ),
    max_size=12,
).map(" ".join)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, ANY, max_size=6))
def test_made_up(board: dict[str, Any]) -> None:
    assert all(isinstance(fault, str) for fault in lint(board, AROUND))


@settings(max_examples=200, deadline=None)
@given(WORDS)
def test_made_up_queries(expr: str) -> None:
    board = {"uid": "x", "panels": [{"id": 1, "type": "text", "datasource": "Prometheus", "targets": [{"expr": expr}]}]}
    assert all(fault.startswith("panel 1: ") for fault in lint(board, AROUND))
