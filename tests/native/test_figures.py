"""The targets' figures in a terminal: what is asked, and how it looks."""

from typing import Any

import pytest

from native import figures
from native.figures import BLOCKS, HEAD, HIT, KNOWN, LOOKED_UP, UP, VERDICT, Figures, NoAnswerError
from tests.sockets import free_port, reply, serving

NOW = 1_000_000.0
WARM, COLD = (figures.TTFT.format(arm=arm) for arm in ("repeat", "control"))
ANSWERS: dict[str, dict[str, Any]] = {
    KNOWN: {"gateway": 1, "b": 1, "a": 1, "down": 1},
    UP: {"a": 1, "b": 1, "down": 0},
    LOOKED_UP: {"a": 2000.0, "b": 75.0},
    HIT: {"a": 0.6157},
    WARM: {"a": 0.0134, "gateway": 0.2},
    COLD: {"a": 0.0741},
}
BUSY = Figures("a", True, ("healthy",), 2000.0, 0.6157, (None, 0.0, 0.5, 1.0), 0.0134, 0.0741)


def ask(query: str, path: str = "query", **params: str) -> list[dict[str, Any]]:
    if path == "query_range":
        start, end = float(params["start"]), float(params["end"])
        assert (start, end, params["step"]) == (NOW - 3600 + 120, NOW, "120")
        return [{"metric": {"target": "a"}, "values": [[start + 120, "0.25"], [end, "0.5"]]}]
    if query == VERDICT:
        told = [("a", "healthy"), ("b", "no_traffic"), ("b", "boundary_last_block")]
        return [{"metric": {"target": target, "verdict": verdict}, "value": [NOW, "1"]} for target, verdict in told]
    return [{"metric": {"target": target}, "value": [NOW, str(value)]} for target, value in ANSWERS[query].items()]


def test_each_target_gets_what_is_known_of_it() -> None:
    a, b, down, gateway = figures.collect(ask, NOW)
    hour = (None, 0.25, *[None] * 27, 0.5)
    assert a == Figures("a", True, ("healthy",), 2000.0, 0.6157, hour, 0.0134, 0.0741)
    assert b == Figures("b", True, ("boundary_last_block", "no_traffic"), 75.0, None, (None,) * 30, None, None)
    assert down == Figures("down", False, (), None, None, (None,) * 30, None, None)
    assert gateway == Figures("gateway", None, (), None, None, (None,) * 30, 0.2, None)


def test_absent_is_never_zero() -> None:
    rows = [figures.row(each, "utf-8") for each in figures.collect(ask, NOW)]
    assert rows == [
        ("a", "healthy", "61.6%", f" {BLOCKS[2]}{' ' * 27}{BLOCKS[4]}", "13 ms", "74 ms"),
        ("b", "boundary_last_block, no_traffic", "no traffic", "-", "-", "-"),
        ("down", "-", "-", "-", "-", "-"),
        ("gateway", "-", "-", "-", "200 ms", "-"),
    ]
    assert {len(row) for row in rows} == {len(HEAD)}


@pytest.mark.parametrize(
    ("encoding", "drawn"), [("utf-8", " ▁▅█"), ("ascii", " _-#"), ("latin-1", " _-#"), ("?", " _-#")]
)
def test_a_sparkline(encoding: str, drawn: str) -> None:
    assert figures.sparkline((None, 0.0, 0.5, 1.0), encoding) == drawn


def test_a_sparkline_without_a_figure_is_none() -> None:
    assert figures.sparkline((None, None), "utf-8") == "-"


def test_a_zero_is_shown_as_such() -> None:
    zero = Figures("a", True, (), 1.0, 0.0, (0.0,), None, None)
    assert figures.row(zero, "utf-8")[2:4] == ("0.0%", "▁")


def test_a_prometheus_that_does_not_answer_is_one_line() -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    told = figures.text(url, "utf-8")
    assert told == f"  Targets: Prometheus at {url} does not answer: [Errno 111] Connection refused"
    assert figures.data([{"name": "x"}], url) == {
        "programs": [{"name": "x"}],
        "targets": None,
        "error": told.removeprefix("  Targets: "),
    }
    assert figures.text("", "utf-8") == "  Targets: there is no Prometheus to ask"


@pytest.mark.parametrize("body", ["<html>", "[]", "{}", '{"data": 1}'])
def test_an_answer_that_is_no_prometheus_is_told(body: str) -> None:
    with serving(reply(body)) as other, pytest.raises(NoAnswerError, match="does not answer"):
        figures.at(other.url)


def test_no_target_is_told() -> None:
    with serving(reply('{"data": {"result": []}}')) as empty:
        assert figures.text(empty.url, "utf-8") == "  Targets: none is scraped yet"
        assert figures.data([], empty.url) == {"programs": [], "targets": [], "error": None}
