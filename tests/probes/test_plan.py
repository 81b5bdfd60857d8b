"""What a cycle sends: shared in front, unique behind, and never too short to tell anything."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import plan
from probes.plan import Arm, Calibration, Shape, cycle, target_tokens
from tests.inputs import CASES, expectation


def content(planned: plan.Planned) -> tuple[str, str]:
    system, user = planned.messages
    return system["content"], user["content"]


def test_one_engine() -> None:
    sent = cycle("seed", 1, 100)
    assert [each.arm for each in sent] == [Arm.RETAINED, Arm.CONTROL, Arm.REPEAT, Arm.REPEAT]
    retained, control, *repeats = map(content, sent)
    assert {system for system, _ in repeats} == {retained[0]}
    assert control[0].split(" ", 1)[0] not in retained[0]
    assert len(control[0].split()) == len(retained[0].split()) == 100
    assert len({user for _, user in map(content, sent)}) == 4
    assert all(each.headers == {} for each in sent)


@pytest.mark.parametrize("ranks", [2, 4])
def test_several_ranks_are_each_asked_twice(ranks: int) -> None:
    names = tuple(map(str, range(ranks)))
    sent = cycle("seed", 1, 100, Shape(ranks=names))
    for arm in (Arm.RETAINED, Arm.REPEAT):
        assert [each.headers["X-data-parallel-rank"] for each in sent if each.arm is arm] == list(names)
    least = expectation(CASES / "16-dp-ranks-rotate")["probe"]["min_sends_before_verdict"]
    if ranks == 4:
        assert sum(each.arm is not Arm.CONTROL for each in sent) >= least


def test_with_a_salt_the_control_is_the_same_text_and_yet_cold() -> None:
    retained, control, *_ = cycle("seed", 1, 100, Shape(salted=True))
    assert content(control)[0] == content(retained)[0]
    assert list(control.extra) == ["cache_salt"]
    assert control.extra["cache_salt"] not in (None, "")


def test_the_shared_prefix_outlives_the_cycle_and_nothing_else_does() -> None:
    cycles = [cycle("seed", number, 100) for number in range(20)]
    assert len({content(sent[0])[0] for sent in cycles}) == 1
    tails = [content(each)[1] for sent in cycles for each in sent]
    assert len(set(tails)) == len(tails)
    heads = [content(sent[1])[0][:12] for sent in cycles]
    assert len(set(heads)) == len(heads)


def test_nothing_that_a_clock_or_a_machine_gives_stands_in_the_prefix() -> None:
    assert set(plan.text("seed", 500).split()) <= set(plan.WORDS)
    assert cycle("seed", 1, 50) == cycle("seed", 1, 50)


def test_a_longer_prefix_starts_with_the_shorter_one() -> None:
    assert plan.text("seed", 300).startswith(plan.text("seed", 200))


@given(st.integers(1, 4000))
def test_the_length_is_four_units_at_least_and_far_from_a_whole_number_of_them(unit: int) -> None:
    length = target_tokens(unit)
    assert length >= 4 * unit
    assert length >= 1000
    assert unit == 1 or length % unit == unit // 2


# Counts are rounded, so 200 words apart at least: 700 words are then off by (0.5 + 490 / 200 + 0.5) / 0.5 = 7 at most.
@given(st.floats(0.5, 10), st.integers(0, 300), st.integers(10, 500), st.integers(200, 2500))
def test_two_lengths_tell_what_a_word_and_a_template_cost(per_word: float, fixed: int, few: int, gap: int) -> None:
    learned = Calibration()
    for words in (few, few + gap):
        learned = learned.learn(words, round(fixed + per_word * words))
    assert learned.words_for(round(fixed + per_word * 700)) == pytest.approx(700, abs=12)


def test_one_length_is_taken_in_proportion_and_nonsense_is_forgotten() -> None:
    once = Calibration().learn(100, 620)
    assert once.words_for(1240) == 200
    assert once.learn(200, 600).seen == ((200, 600),)  # more words, fewer tokens: another tokenizer


def test_nonces_never_repeat() -> None:
    marks = [plan.nonce("seed", number, index) for number, index in itertools.product(range(100), range(20))]
    assert len(set(marks)) == len(marks)
