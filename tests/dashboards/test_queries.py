"""Every query of every dashboard, asked of either generation of Prometheus in the states that an engine can be in."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import NEWER, OLDER, ROOT
from tests.dashboards.world import DOWN, GATEWAY, IDLE, V0, WORKING, ZERO_HITS, World, settled, world

TWO = f"{WORKING}|{IDLE}"
STATES = (WORKING, ZERO_HITS, IDLE, DOWN, V0, GATEWAY, TWO)
SHOWN_SECONDS = 40.0
ANNOTATION, VARIABLE = "(annotation)", "(variable)"

# What an engine that works has nothing to answer to: it is not as old, not of that kind, or not in trouble.
EMPTY_WHEN_WORKING = {
    ("Users' hit rate now, an hour ago, a day ago", "1 h ago"),
    ("Users' hit rate now, an hour ago, a day ago", "1 d ago"),
    ("Users' hit rate now, an hour ago, a day ago", "{{target}} ever (V0)"),
    ("Failed requests within an hour", "A"),
    (ANNOTATION, "Settings change"),
    (ANNOTATION, "Canary failure"),
}
# No simulated engine hides a field.
NOT_HERE = {"What engines do not tell": "as far as engines answer"}
CALM = {"Alerts": "Nothing fires", "Failed requests within an hour": "No failed request"}
NO_RATE = {"Users' hit rate now, an hour ago, a day ago": "No traffic of users"}
NO_USERS = {
    "Users' hit rate": "No traffic of users",
    "Prefill within the last hour": "no counted traffic",
}
NO_ANSWER = {
    "KV blocks": "No engine answers",
    "Tokens that fit": "No engine answers",
    "In use, fullest rank": "No engine answers",
    "KV blocks in use": "No engine answers",
    "KV blocks in use, by rank": "No engine answers",
    "Running": "No engine answers",
    "Waiting": "No engine answers",
}
UNCOUNTED = {
    "Prompt tokens per second": "none that the engine counts",
    "Prompt tokens/s by target": "none that the engine counts",
    "Hit rate with the canary's requests": "none that the engine counts",
    "Hit rate, by rank": "none that the engine counts",
    "Evicted blocks/s": "--kv-cache-metrics",
    "Life of an evicted block": "--kv-cache-metrics",
    "Idle before eviction": "--kv-cache-metrics",
    "Gap between two uses": "--kv-cache-metrics",
}
NO_CACHED_TOKENS = {"Canary: cached share of its prompt": "the usage tells no cached tokens"}
NO_HIT = {"Since the last hit": "No hit of users"}
# The panels that are blank in a state, and words that have to stand in them then.
BLANK = {
    WORKING: NOT_HERE | {"Failed requests within an hour": "No failed request"},
    ZERO_HITS: NOT_HERE | CALM,
    IDLE: NOT_HERE | CALM | NO_USERS | NO_RATE,
    DOWN: NOT_HERE
    | NO_USERS
    | NO_RATE
    | NO_ANSWER
    | NO_HIT
    | {"Canary: cached share of its prompt": "No cycle succeeded", "TTFT by shared part of the prompt": "No sweep"},
    V0: NOT_HERE
    | CALM
    | NO_USERS
    | UNCOUNTED
    | NO_CACHED_TOKENS
    | NO_HIT
    | {"Hit rate over time": "none that the engine counts"},
    GATEWAY: NOT_HERE
    | CALM
    | NO_USERS
    | NO_RATE
    | NO_ANSWER
    | UNCOUNTED
    | NO_HIT
    | {
        "TTFT against hit rate, each moment a point": "No traffic of users",
        "Evictions and preemptions": "--kv-cache-metrics",
        "Engines": "No engine among these",
        "First token: all requests": "none that the engine counts",
        "Preempted in 5 min": "No engine answers",
        "Requests": "No engine answers",
        "Restarts in a day": "No engine answers",
        "Where the first token waits, p95": "none that the engine counts",
    },
    TWO: NOT_HERE | {"Failed requests within an hour": "No failed request"},
}
# The canary is thirty times as fast here as it is by default, and what it finds at first may pass for a user's.
EITHER = {state: {"Since the last hit"} for state in (IDLE, ZERO_HITS)}


@dataclass(frozen=True)
class Asked:
    """A query of a dashboard, and how many series it returned in each state."""

    board: str
    panel: str
    query: str
    no_data: str
    series: dict[str, int]


Answers = dict[str, list[Asked]]  # by generation of Prometheus


def fill(expr: str, target: str) -> str:
    """Put values in place of variables, as Grafana does."""
    values = {"$__rate_interval": "60s", "$target": target, "$model": ".*", "$engine": ".*"}
    for name, value in values.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def ask(there: World, name: str, board: dict[str, Any], now: float) -> Iterator[Asked]:
    def series(expr: str, seconds: float) -> dict[str, int]:
        return {state: there.count(fill(expr, state), now, seconds) for state in STATES}

    for panel in board["panels"]:
        no_data = panel["fieldConfig"]["defaults"].get("noValue", "")
        for target in panel["targets"]:
            found = series(target["expr"], 0 if target["instant"] else SHOWN_SECONDS)
            yield Asked(name, panel["title"], target["legendFormat"] or target["refId"], no_data, found)
    for mark in board["annotations"]["list"]:
        if "expr" in mark:
            yield Asked(name, ANNOTATION, mark["name"], "", series(mark["expr"], SHOWN_SECONDS))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            values = there.label_values(variable["query"]["query"])
            yield Asked(name, VARIABLE, variable["name"], "", dict.fromkeys(STATES, len(values)))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    boards = {
        p.stem: json.loads(p.read_text("utf-8")) for p in sorted((ROOT / "dashboards" / "out").glob("apc-*.json"))
    }
    with world(tmp_path_factory.mktemp("world")) as seen, ThreadPoolExecutor() as pool:
        now = settled()

        def of(there: World) -> list[Asked]:
            return [answer for name, board in boards.items() for answer in ask(there, name, board, now)]

        found = dict(zip(seen, pool.map(of, seen.values()), strict=True))
    print(table(found))
    return found


@pytest.fixture(scope="module", params=[OLDER, NEWER])
def asked(answers: Answers, request: pytest.FixtureRequest) -> list[Asked]:
    return answers[request.param]


def table(answers: Answers) -> str:
    """Tell how many series the older and the newer Prometheus returned."""
    heads = ("dashboard", "panel", "query", *STATES)
    rows = [
        (a.board, a.panel[:38], a.query[:28], *(f"{a.series[state]}/{b.series[state]}" for state in STATES))
        for a, b in zip(answers[OLDER], answers[NEWER], strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows))
    return "\n".join(["", *lines])


def blank(asked: list[Asked], state: str) -> dict[tuple[str, str], str]:
    """Return the panels of which no query has data, and what stands in them."""
    panels: dict[tuple[str, str], list[Asked]] = {}
    for a in asked:
        if a.panel not in {ANNOTATION, VARIABLE}:
            panels.setdefault((a.board, a.panel), []).append(a)
    return {place: of[0].no_data for place, of in panels.items() if not any(a.series[state] for a in of)}


def test_every_query_of_a_working_engine_has_data(asked: list[Asked]) -> None:
    empty = {(a.panel, a.query) for a in asked if not a.series[WORKING] and a.panel not in NOT_HERE}
    assert empty == EMPTY_WHEN_WORKING


@pytest.mark.parametrize("state", STATES)
def test_a_blank_panel_says_why(asked: list[Asked], state: str) -> None:
    either = EITHER.get(state, set())
    found = {place: text for place, text in blank(asked, state).items() if place[1] not in either}
    assert {panel for _, panel in found} == set(BLANK[state])
    wrong = {place: text for place, text in found.items() if BLANK[state][place[1]] not in text}
    assert wrong == {}


def test_two_targets_are_two_rows_and_one_sum(asked: list[Asked]) -> None:
    series = {(a.board, a.panel, a.query): a.series for a in asked}
    assert series["apc-fleet", "Targets", "{{target}}"][TWO] == 2
    assert series["apc-oncall", "Verdict", "{{target}}"][TWO] == 2
    assert series["apc-fleet", "Users' hit rate", "A"][TWO] == 1


def test_what_happened_is_marked(asked: list[Asked]) -> None:
    marks = {a.query: a.series for a in asked if a.panel == ANNOTATION}
    assert marks["Engine restart"][WORKING] == 1
    assert marks["Alert"][WORKING] >= 1
    assert marks["Canary failure"][DOWN] >= 1


def test_variables_offer_every_target(asked: list[Asked]) -> None:
    offered = {a.query: a.series[WORKING] for a in asked if a.panel == VARIABLE}
    assert offered == {"target": 6, "model": 1, "engine": 1}
