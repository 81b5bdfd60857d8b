"""A verdict from saved files, as a person has them."""

import csv
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from exporter.window import Tokens
from probes.doctor import InputError, Report, from_files
from probes.evidence import Reply
from probes.plan import Arm
from probes.saved import canaries
from tests.inputs import CASES, cases, expectation
from tests.probes.bodies import body

Save = Callable[..., str]
CHAT, COMPLETIONS = [1, 5, 6, 7, 8, 9], [1, 1, 5, 6, 7, 8, 9]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Save a text, or rows as JSON lines, and return the path."""

    def made(content: str | list[dict[str, object]], name: str = "file") -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else "".join(f"{json.dumps(row)}\n" for row in content))
        return str(path)

    return made


def code(report: Report) -> str:
    return report.verdicts[0].code.value


def files_of(case: Path) -> dict[str, str]:
    names = {"before": "t0.prom", "after": "t1.prom", "canary": "canary.jsonl"}
    found = {option: str(case / name) for option, name in names.items() if (case / name).exists()}
    tables = [str(path) for path in (case / "canary.csv", case / "midnight.json") if path.exists()]
    return found | ({"canary": tables[0]} if tables and case.name[:2] != "01" else {})


OF_FILES = {"01", "02", "03", "05", "06", "08", "09", "16", "52"}


@pytest.mark.parametrize("case", [case for case in cases("doctor") if case.name[:2] in OF_FILES], ids=lambda c: c.name)
def test_a_cases_own_files_give_its_verdict(case: Path) -> None:
    assert code(from_files(files_of(case))) == expectation(case)["doctor"]["code"].lower()


def test_a_miss_at_midnight_is_found_in_an_array_and_in_lines(save: Save) -> None:
    path = CASES / "48-date-in-the-prompt-head" / "midnight.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    assert code(from_files({"canary": str(path)})) == "date_rollover"
    assert code(from_files({"canary": save(rows)})) == "date_rollover"
    assert canaries(str(path)).replies[1].at == datetime.fromisoformat("2026-09-15T00:02:00+02:00")


def test_a_table_and_its_rows_as_lines_are_alike(save: Save) -> None:
    path = CASES / "02-exact-block-multiple" / "canary.csv"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows: list[dict[str, object]] = [{name: int(text) for name, text in row.items()} for row in csv.DictReader(lines)]
    assert canaries(str(path)) == canaries(save(rows))
    assert canaries(str(path)).replies[:2] == (Reply(256, 0, same=True), Reply(257, 256, same=True))
    assert canaries(str(path)).tokens == Tokens(3073, 2048)


def runs(*cached: int | None, model: str = "demo-7b", start: int = 1) -> list[dict[str, object]]:
    """Return two sightings a run."""
    return [
        {"run": start + n // 2, "sighting": 1 + n % 2, "model": model, "prompt_tokens": 2003, "cached_tokens": found}
        for n, found in enumerate(cached)
    ]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (runs(0, 1984, 0, 1984), "canary_evicted"),
        (runs(None, 1984, None, 1984), "canary_evicted"),  # older engines leave a zero out
        (runs(16, 1984, 16, 1984), "canary_evicted"),
        (runs(0, 1984, 1984, 1984), "healthy"),
        (runs(None, None, None, None), "usage_details_off"),
        ([*runs(0, 1984), *runs(0, 1984, model="demo-lora", start=2)], "healthy"),  # its own cache is cold
        ([*runs(0, 1984), *runs(0, 0, 0, 0, model="demo-lora")], "enabled_but_never_reused"),
        ([*runs(0, 1984), *[row | {"cache_salt": "b"} for row in runs(0, 1984, start=2)]], "healthy"),
    ],
)
def test_sightings(save: Save, rows: list[dict[str, object]], wanted: str) -> None:
    assert code(from_files({"canary": save(rows)})) == wanted


def test_what_once_prints_can_be_judged(save: Save) -> None:
    arms = [("calibration", 736, 0), ("retained", 1008, 0), ("control", 1008, 0), ("repeat", 1008, 992)]
    results: list[dict[str, object]] = [
        {"arm": arm, "prompt_tokens": prompt, "cached_tokens": cached, "error": None, "marks": []}
        for arm, prompt, cached in [*arms, arms[-1]]
    ]
    printed = json.dumps({"result": "ok", "results": results}, indent=1)
    sent = canaries(save(printed * 2))
    assert [reply.arm for reply in sent.replies] == [Arm.RETAINED, Arm.CONTROL, Arm.REPEAT, Arm.REPEAT] * 2
    assert [reply.judged for reply in sent.replies if reply.arm == Arm.RETAINED] == [False, True]
    assert (sent.requests, sent.tokens) == (10, Tokens(2 * 4768, 2 * 1984))
    assert code(from_files({"canary": save(printed)})) == "healthy"
    assert code(from_files({"canary": save(results)})) == "healthy"


def test_an_answer_that_was_held_back_has_no_time_to_its_first_token(save: Save) -> None:
    rows: list[dict[str, object]] = [
        {"arm": "repeat", "cached_tokens": 9, "ttft_seconds": 0.5, "marks": marks}
        for marks in (["buffered"], ["capped"])
    ]
    assert [reply.ttft for reply in canaries(save(rows)).replies] == [None, 0.5]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", "is neither JSON nor CSV with cached_tokens"),
        ('{"cached_tokens": 1}\n{"cached', "line 2: no JSON"),
        ('["null.jsonl"]', "line 1: no result of a canary"),
        ('{"cached_tokens": -1}', "line 1: cached_tokens -1 is no count"),
        ('{"cached_tokens": 1, "arm": "x"}', "line 1: arm 'x' is none of retained"),
        ('{"cached_tokens": 1, "ttft_seconds": "x"}', "line 1: ttft_seconds 'x' are no seconds"),
        ('{"cached_tokens": 1, "at": "noon"}', "line 1: at 'noon' is no time"),
        ("cached_tokens\nx\n", "row 1: cached_tokens 'x' is no count"),
    ],
)
def test_what_is_no_result_is_named(save: Save, content: str, words: str) -> None:
    with pytest.raises(InputError, match=r"^--canary: ") as raised:
        canaries(save(content))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("left", "right", "wanted", "at"),
    [
        (CHAT, COMPLETIONS, "double_bos", 1),
        ({"tokens": CHAT, "count": 6}, {"tokens": COMPLETIONS, "count": 7}, "double_bos", 1),
        ({"usage": {"prompt_tokens": 8}}, {"usage": {"prompt_tokens": 9}}, "double_bos", None),
        ({"usage": {"prompt_tokens": 8}}, {"usage": {"prompt_tokens": 8}}, "healthy", None),
        (CHAT, [*CHAT, 10], "healthy", None),
        (CHAT, [1, 4, 6, 7, 8, 9], "volatile_prompt_head", 1),
        ({"messages": [{"role": "user", "content": "a"}]}, [{"role": "user", "content": "a"}], "healthy", None),
    ],
)
def test_prompts_as_ids_lengths_and_messages(save: Save, left: Any, right: Any, wanted: str, at: int | None) -> None:
    paths = [save(json.dumps(prompt), name) for name, prompt in (("left", left), ("right", right))]
    (verdict,) = from_files({"prompt": paths}).verdicts
    assert (verdict.code.value, verdict.numbers.get("first_difference_token")) == (wanted, at)


def test_case_49_as_two_files(save: Save) -> None:
    case = CASES / "49-double-bos-two-endpoints"
    tokens = json.loads((case / "tokens.json").read_text(encoding="utf-8"))
    (verdict,) = from_files({"prompt": [save(json.dumps(ids), name) for name, ids in tokens.items()]}).verdicts
    wanted = expectation(case)["doctor"]
    assert verdict.code.upper() == wanted["code"]
    assert verdict.numbers["first_difference_token"] == wanted["first_difference_token"]


def test_ids_are_not_compared_with_text(save: Save) -> None:
    with pytest.raises(InputError, match="two lists of token ids"):
        from_files({"prompt": [save("[1, 5]", "ids"), save("text", "text")]})


def test_a_question_behind_shared_text_is_no_fault(save: Save) -> None:
    shared = "You are the support desk of a network provider. " * 20
    report = from_files({"prompt": [save(f"{shared}{question}", question) for question in ("cat", "dog")]})
    (verdict,) = report.verdicts
    assert (verdict.code, report.found_fault) == ("healthy", False)
    assert verdict.sentence.startswith("The prompts share 100% and part at character 960")


def test_a_body_that_cannot_be_read_is_named(save: Save) -> None:
    good, bad = save(body(queries=9, hits=0), "good"), save("python_info 1\n", "bad")
    for files, option in (({"before": bad, "after": good}, "--before"), ({"before": good, "after": bad}, "--after")):
        verdict = from_files(files).verdicts[0]
        assert verdict.code == "metrics_unusable"
        assert f"{option} {bad}: no series" in verdict.sentence
    both = from_files({"before": bad, "after": bad}).verdicts[0].sentence
    assert "--before" in both
    assert "--after" in both


def test_one_body_is_the_present(save: Save) -> None:
    off = save(body(enabled=False, queries=0, hits=0))
    assert [code(from_files({option: off})) for option in ("before", "after")] == ["apc_disabled"] * 2
