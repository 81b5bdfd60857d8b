import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.divergence import (
    Divergence,
    Kind,
    Message,
    Prompt,
    Suspect,
    TokenFinding,
    compare,
    compare_lengths,
    compare_tokens,
)
from tests.inputs import CASES, expectation

WEATHER = '{"name": "get_weather", "description": "now"}'
TIME = '{"name": "get_time", "description": "here"}'
UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c330"


def case(start: str, file: str) -> tuple[Any, Any]:
    (folder,) = CASES.glob(f"{start}-*")
    return json.loads((folder / file).read_text(encoding="utf-8")), expectation(folder)["doctor"]


def chat(*contents: str) -> list[Message]:
    roles = ["system", "user", "assistant", "user"]
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]


def test_a_time_in_the_prompts_head_is_found() -> None:
    (left, right), expected = case("48", "prompts.json")
    found = compare(left, right)
    assert found.first_difference_char == expected["first_difference_char"] == 54
    assert found.token_ish == 13
    assert found.suspects == (Suspect(Kind.TIME_OF_DAY, "20:37:19", "20:38:02"),)
    assert found.sentence == (
        "The prompts share 43% and part at character 54 (about token 13, at 4 characters a token): "
        '"… cutoff: 2024-06. Current time is 20:37:19, Friday. You are the demo assistant…" against '
        '"… cutoff: 2024-06. Current time is 20:38:02, Friday. You are the demo assistant…"; it looks like time of day.'
    )


@pytest.mark.parametrize(
    ("left", "right", "kind", "shown"),
    [
        ("on 2026-09-14.", "on 2026-09-15.", Kind.ISO_DATE, ("2026-09-14", "2026-09-15")),
        ("今天是2026年9月14日。", "今天是2026年9月15日。", Kind.ISO_DATE, ("2026年9月14日", "2026年9月15日")),
        ("2026-09-14T23:58:00Z", "2026-09-14T23:59:00Z", Kind.TIME_OF_DAY, ("23:58:00", "23:59:00")),
        ("It is Monday.", "It is Friday.", Kind.CALENDAR_DATE, ("Monday", "Friday")),
        ("14 September 2026", "15 September 2026", Kind.CALENDAR_DATE, ("14 September 2026", "15 September 2026")),
        ("on Sep 14", "on Oct 2", Kind.CALENDAR_DATE, ("Sep 14", "Oct 2")),
        ("ts=1789000000;", "ts=1789000060;", Kind.UNIX_TIME, ("1789000000", "1789000060")),
        (f"<{UUID}1>", f"<{UUID}2>", Kind.UUID, (f"{UUID}1", f"{UUID}2")),
        ("request 9f86d081884c", "request 60303ae22b99", Kind.ID, ("9f86d081884c", "60303ae22b99")),
        ("[req-77ab x]", "[req-77cd x]", Kind.ID, ("req-77ab", "req-77cd")),
        ("this is turn 12 of", "this is turn 13 of", Kind.COUNTER, ("turn 12", "turn 13")),
        ("turn 1\n", "turn 12\n", Kind.COUNTER, ("", "turn 12")),
        ("第3轮对话", "第4轮对话", Kind.COUNTER, ("第3轮", "第4轮")),
        ("user: anna, hi", "user: bert, hi", Kind.USER, ("user: anna", "user: bert")),
        ('{"user_name": "anna"}', '{"user_name": "bob"}', Kind.USER, ('user_name": "anna', 'user_name": "bob')),
        ("(kZ8fQ2mXw1) go", "(pT7cR4nYv9) go", Kind.NONCE, ("kZ8fQ2mXw1", "pT7cR4nYv9")),
        ("a\r\nb", "a\nb", Kind.LINE_ENDING, (r"\r\n", r"\n")),
        ("a  b", "a b", Kind.WHITESPACE, (" ", "")),
        ("a\tb", "a b", Kind.WHITESPACE, (r"\t", " ")),
        ("end ", "end", Kind.WHITESPACE, (" ", "")),
        (f"<tools>[{WEATHER}, {TIME}]", f"<tools>[{TIME}, {WEATHER}]", Kind.TOOL_ORDER, ("", "")),
        (WEATHER, '{"description": "now", "name": "get_weather"}', Kind.KEY_ORDER, ("", "")),
    ],
)
def test_a_usual_suspect_is_recognised(left: str, right: str, kind: Kind, shown: tuple[str, str]) -> None:
    assert compare(left, right).suspects == (Suspect(kind, *shown),)
    assert compare(right, left).suspects == (Suspect(kind, *reversed(shown)),)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("What is a cat?", "What is a dog?"),
        ("The rules are short", "The rules are short. Be brief."),
        ("At 10:00 we met a cat", "At 10:00 we met a dog"),  # what varies is not what stands before
        (f"tools: {WEATHER}", f"tools: {TIME}"),
    ],
)
def test_plain_text_has_no_suspect(left: str, right: str) -> None:
    assert compare(left, right).suspects == ()


@pytest.mark.parametrize(
    ("left", "right", "index", "role"),
    [
        (chat("Rules.", "Hi"), chat("Rules.", "Hello"), 1, "user"),
        (chat("Rules, Monday.", "Hi"), chat("Rules, Friday.", "Hi"), 0, "system"),
        (chat("Rules.", "Hi"), chat("Rules.", "Hi", "Yes?"), 2, "assistant"),
        (chat("Rules.", "Hi", "Yes?"), chat("Rules.", "Hi"), 2, "assistant"),
        (chat("Rules."), [{"role": "developer", "content": "Rules."}], 0, "developer"),
        (chat("Rules."), [{"role": "system", "content": [{"type": "text", "text": "Rules."}]}], 0, "system"),
        (chat("a"), [{"role": "system", "content": "a", "tool_calls": [{"id": "call_1"}]}], 0, "system"),
    ],
)
def test_message_lists_part_in_a_message(left: list[Message], right: list[Message], index: int, role: str) -> None:
    found = compare(left, right)
    assert (found.message_index, found.role) == (index, role)
    assert f"in message {index} ({role})" in found.sentence


def test_message_lists_are_compared_as_chatml() -> None:
    found = compare(chat("Rules.", "Hi"), chat("Rules.", "Ho"))
    rendered = "<|im_start|>system\nRules.<|im_end|>\n<|im_start|>user\nH"
    assert found.first_difference_char == len(rendered)
    assert compare(rendered + "i<|im_end|>\n", chat("Rules.", "Hi")) == Divergence(None)
    assert found.left_excerpt == r"…Rules.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"


def test_the_same_prompts_do_not_part() -> None:
    assert compare("same", "same") == Divergence(None)
    assert compare("", "").shared_share == 1.0
    assert compare(chat("a"), chat("a")).sentence == "The prompts are the same."


def test_a_prompt_that_goes_on_parts_at_the_others_end() -> None:
    found = compare("Rules.", "Rules. More")
    assert (found.first_difference_char, found.shared_share) == (6, 6 / 11)
    assert (found.left_excerpt, found.right_excerpt) == ("Rules.", "Rules. More")


@given(st.text(), st.text(), st.text())
def test_the_place_is_exact_and_little_is_shown(prefix: str, left: str, right: str) -> None:
    found = compare(f"{prefix}a{left}", f"{prefix}b{right}")
    assert found.first_difference_char == len(prefix)
    assert found.token_ish == len(prefix) // 4
    assert 0 <= found.shared_share < 1
    for shown in (found.left_excerpt, found.right_excerpt):
        assert len(shown) <= 80
        assert shown.isprintable()
    mirrored = compare(f"{prefix}b{right}", f"{prefix}a{left}")
    assert (mirrored.left_excerpt, mirrored.right_excerpt) == (found.right_excerpt, found.left_excerpt)


@pytest.mark.parametrize("differing", [0, 5, 70, 127])
def test_a_long_id_is_named_and_not_given_out_whole(differing: int) -> None:
    left = "secret" * 9 + " " + "0a1b" * 32
    at = 55 + differing
    found = compare(left, f"{left[:at]}f{left[at + 1 :]}")
    (suspect,) = found.suspects
    assert suspect.kind is Kind.ID
    for shown, excerpt in ((suspect.left, found.left_excerpt), (suspect.right, found.right_excerpt)):
        assert shown
        assert shown in excerpt


LONG = "You are the support desk of a network provider. " * 20


@pytest.mark.parametrize(
    ("left", "right", "volatile"),
    [
        (chat(LONG, "What is a cat?"), chat(LONG, "How do I reset it?"), False),  # the best case
        (chat(LONG, "Hi"), chat(LONG, "Hi", "Hello", "Bye"), False),  # the next turn
        (chat("Be brief.", "What is a cat?"), chat("Be brief.", "How do I reset it?"), False),
        (chat(LONG, "It is Monday. Hi"), chat(LONG, "It is Friday. Ho"), False),  # where it belongs
        (chat("Be brief.", f"It is Monday. {LONG}"), chat("Be brief.", f"It is Friday. {LONG}"), True),
        (chat(f"It is Monday. {LONG}", "Hi"), chat(f"It is Friday. {LONG}", "Hi"), True),
        (chat(LONG, "a", "b", "c"), chat(LONG, "d", "e", "f"), True),  # another history
        (f"{LONG} cat?", f"{LONG} How do I reset it?", False),
        (f"{LONG} turn 1", f"{LONG} turn 2", False),
        (LONG, f"{LONG} More", False),
        ("cats " * 20, "dogs " * 20, True),
        ("same", "same", False),
    ],
)
def test_what_varies_before_shared_text_is_told_from_what_stands_behind_it(
    left: Prompt, right: Prompt, volatile: bool
) -> None:
    assert compare(left, right).volatile is volatile
    assert compare(right, left).volatile is volatile


def test_a_double_bos_is_recognised() -> None:
    tokens, expected = case("49", "tokens.json")
    found = compare_tokens(tokens["chat"], tokens["completions"])
    assert found.finding.upper() == expected["code"]
    assert found.first_difference_token == expected["first_difference_token"] == 1
    assert found.sentence.startswith("One prompt starts with token 1 twice: double BOS")


@pytest.mark.parametrize(
    ("left", "right", "finding", "at"),
    [
        ([1, 5, 6], [1, 5, 6], TokenFinding.SAME, None),
        ([], [], TokenFinding.SAME, None),
        ([1, 1, 5, 6], [1, 5, 6], TokenFinding.DOUBLE_BOS, 1),
        ([1], [1, 1], TokenFinding.DOUBLE_BOS, 1),
        ([], [1], TokenFinding.EXTENDED, 0),
        ([1, 5], [1, 5, 6], TokenFinding.EXTENDED, 2),
        ([5, 6], [1, 5, 6], TokenFinding.DIFFERENT, 0),  # one without BOS
        ([1, 5, 6], [1, 1, 5, 7], TokenFinding.DIFFERENT, 1),
        ([1, 5, 6, 7, 8, 9], [1, 1, 5, 6, 7, 8], TokenFinding.DOUBLE_BOS, 1),  # cut to one length
        ([1, 5, 6, 7, 8, 30], [1, 1, 5, 6, 7, 8, 31], TokenFinding.DOUBLE_BOS, 1),  # other tails
        ([1, 1, 5, 6], [1, 1, 7, 6], TokenFinding.DIFFERENT, 2),
        ([1, 5, 6], [1, 7, 6], TokenFinding.DIFFERENT, 1),
    ],
)
def test_token_ids_are_compared(left: list[int], right: list[int], finding: TokenFinding, at: int | None) -> None:
    for found in (compare_tokens(left, right), compare_tokens(right, left)):
        assert (found.finding, found.first_difference_token) == (finding, at)


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_the_token_is_exact(prefix: list[int], left: list[int], right: list[int]) -> None:
    assert compare_tokens([*prefix, 10, *left], [*prefix, 11, *right]).first_difference_token == len(prefix)


@pytest.mark.parametrize(
    ("left", "right", "finding", "sentence"),
    [
        (8, 9, TokenFinding.DOUBLE_BOS, "prompt_tokens differs by 1 between endpoints: double BOS, most likely."),
        (9, 8, TokenFinding.DOUBLE_BOS, "prompt_tokens differs by 1 between endpoints: double BOS, most likely."),
        (8, 8, TokenFinding.SAME, "prompt_tokens are the same at both endpoints."),
        (
            8,
            20,
            TokenFinding.DIFFERENT,
            "prompt_tokens differs by 12 between endpoints: they render the prompt differently.",
        ),
    ],
)
def test_lengths_are_compared(left: int, right: int, finding: TokenFinding, sentence: str) -> None:
    found = compare_lengths(left, right)
    assert (found.finding, found.sentence, found.first_difference_token) == (finding, sentence, None)
