"""How many prefixes a cache holds: the plan, a simulated engine with a small cache, and what is said of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from demo.engine import serving
from demo.rank import Settings
from probes.bench import capacity, findings, main, steps
from probes.bench.capacity import Cliff, Round
from probes.bench.findings import Context, Note
from probes.bench.steps import MODES, PROFILES, QUESTIONS, Arm, Kind, Off, Writer
from probes.bench.summary import Figures
from probes.plan import Calibration

BLOCK, BLOCKS = 16, 600  # a prompt of about 2,100 tokens takes 132 blocks: four fit, five do not
TAIL = len(QUESTIONS[1]) + len("<\n<assistant\n")  # tokens behind what both passes share: a byte or a marker each


def found(*shares: tuple[int, float | None]) -> list[Round]:
    return [Round(number, None, None, 2000, share, None, None) for number, share in shares]


def said(room: int | None, rounds: list[Round], unit: int | None = 16) -> list[Note]:
    context = Context(Off.SALT, 32, unit, room, "")
    return findings.notes(context, Figures([], [], [], None, []), rounds)[:-1]  # the last one is of the arms


def test_all_are_asked_and_then_all_again_in_the_same_order() -> None:
    profile = replace(PROFILES["full"], modes=("prefixes",), repetitions=2, prefixes=(1, 3))
    made = steps.stages(profile, Writer("seed", Calibration(per_word=2.0)))
    names = ["prefixes, 1, cold", "prefixes, 1, warm", "prefixes, 3, cold", "prefixes, 3, warm"]
    assert [stage.name for stage in made] == names * 2
    heads = [[batch.asks[0].messages[0]["content"] for batch in stage.batches] for stage in made]
    assert heads[::2] == heads[1::2]
    assert [len(one) for one in heads[::2]] == [1, 3, 1, 3]
    assert len({head for one in heads for head in one}) == 8  # none is asked for another number or repetition
    assert {len(head.split()) for one in heads for head in one} == {1000}
    asks = [batch.asks[0] for stage in made for batch in stage.batches]
    assert {(ask.arm, ask.kind, ask.messages[1]["content"]) for ask in asks} == {
        (Arm.ON, Kind.COLD, QUESTIONS[0]),
        (Arm.ON, Kind.WARM, QUESTIONS[1]),
    }


def test_it_is_of_the_full_profile_alone() -> None:
    assert [name for name, profile in PROFILES.items() if "prefixes" in profile.modes] == ["full"]
    assert MODES[-1] == "prefixes"
    assert PROFILES["full"].prefixes == (1, 2, 4, 5, 6, 8)


def test_a_small_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "bench.json", tmp_path / "bench.html"
    few = "--modes", "prefixes", "--prefixes", "2,4,5,6", "--repetitions", "2", "--max-tokens", "4", "--seed", "small"
    with serving(Settings(base_ms=1, decode_ms=1, prefill_us_per_token=5), faults={"blocks": BLOCKS}) as engine:
        assert main(["--base-url", engine.url, *few, "--json", str(file), "--html", str(page)]) in (0, 1)
    told = json.loads(file.read_text())
    again = [one for one in told["samples"] if (one["mode"], one["kind"]) == ("prefixes", "warm")]
    assert [(one["at"], one["repetition"]) for one in again] == [
        (number, repetition) for repetition in (0, 1) for number in (2, 4, 5, 6) for _ in range(number)
    ]
    for one in again:
        whole = (one["prompt"] - TAIL) // BLOCK * BLOCK
        if one["at"] == 5:
            assert 0 < one["cached"] < whole
        else:
            assert one["cached"] == (whole if one["at"] < 5 else 0)
    two, four, five, six = told["rounds"]
    for one in (two, four, five, six):
        asked = [sample for sample in again if sample["at"] == one["prefixes"]]
        share = sum(sample["cached"] for sample in asked) / sum(sample["prompt"] for sample in asked)
        assert one["by_usage"] == one["by_counters"] == round(share, 6)
        assert one["again"]["n"] == one["cold"]["n"] == 2
    assert two["blocks"] < 6
    assert four["blocks"] < 6 < five["blocks"] < 120 < six["blocks"]
    (note,) = [one for one in told["notes"] if one["text"].startswith("Asked again in turn, 4 prefixes of ")]
    assert ", and 5 are not (" in note["text"]
    assert "The engine states 9600 tokens, room for 4." in note["text"]
    assert not note["warning"]
    assert [(one["at"], one["what"]) for one in told["changes"]] == [(at, "TTFT, asked again") for at in (2, 4, 5, 6)]
    assert "Prefixes asked in turn" in capsys.readouterr().out
    assert page.read_text().count("<svg") == 2
    assert "room for 4." in page.read_text()


@pytest.mark.parametrize(
    ("rounds", "unit", "expected"),
    [
        (found((4, 0.98), (5, 0.68), (6, 0)), 16, Cliff(4, 5, 2000)),
        (found((1, 0.98), (8, 0.98)), None, Cliff(8, None, 2000)),
        (found((5, 0.68), (6, 0)), 16, Cliff(0, 5, 2000)),
        (found((4, 0.98), (5, 0), (6, 0.98)), 16, Cliff(4, 5, 2000)),
        (found((4, 0.7)), 512, Cliff(4, None, 2000)),  # 1,400 of the 1,488 tokens of whole units
        (found((4, None)), 16, None),
        ([], 16, None),
    ],
)
def test_where_reuse_falls(rounds: list[Round], unit: int | None, expected: Cliff | None) -> None:
    assert capacity.cliff(rounds, unit) == expected


def test_counters_tell_where_the_answers_do_not() -> None:
    rounds = [replace(one, by_counters=share) for one, share in zip(found((1, None), (2, None)), (0.9, 0), strict=True)]
    assert capacity.cliff(rounds, 16) == Cliff(1, 2, 2000)


FALLS = "4 prefixes of 2000 tokens are found (98.8% cached), and 5 are not (68.0%). "
HOLDS = "up to 8 prefixes of 2000 tokens are found (98.8% cached). "
NEVER = "not even 1 prefix of 2000 tokens is found (0.0% cached). "
SMALL = "The engine states 9600 tokens, room for 4.8 of them"
LARGE = "The engine states 32000 tokens, room for 16.0 of them"
AGAINST = ", which does not agree. Ask `python -m probes doctor`."


@pytest.mark.parametrize(
    ("rounds", "room", "text", "warning"),
    [
        (found((4, 0.988), (5, 0.68)), 9600, f"{FALLS}{SMALL}.", False),
        (found((4, 0.988), (5, 0.68)), None, f"{FALLS}The engine does not state the size of its cache.", False),
        (found((4, 0.988), (5, 0.68)), 32000, f"{FALLS}{LARGE}{AGAINST}", True),
        (found((8, 0.988)), 32000, f"{HOLDS}{LARGE}.", False),
        (found((8, 0.988)), 9600, f"{HOLDS}{SMALL}{AGAINST}", True),
        (found((1, 0.0)), 9600, f"{NEVER}{SMALL}{AGAINST}", True),
    ],
)
def test_what_is_said(rounds: list[Round], room: int | None, text: str, *, warning: bool) -> None:
    assert said(room, rounds) == [Note(f"Asked again in turn, {text}", warning)]


def test_nothing_is_said_of_what_was_not_asked_or_not_told() -> None:
    assert said(9600, []) == said(9600, found((4, None))) == []


def test_a_number_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--prefixes", "0,4"]) == 2
    assert "--prefixes: at least 1" in capsys.readouterr().err
