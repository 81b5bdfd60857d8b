import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.outcome import ErrorClass, Place
from probes.stream import CachedState, Mark, Stream
from tests.probes.replay import DONE, EVENT_STREAM, PING, ROLE, chunk, counted

PLACE = Place("http://gpu:8000/v1/chat/completions")
TOKENS = [chunk({"content": letter}) for letter in "abcdef"]
STOP = chunk({}, "stop")


def read(*events: str, began: float = 0.0, spacing: float = 1.0) -> Stream:
    """Return the stream of events of which the first came at `began`, and each further one after `spacing` seconds."""
    stream = Stream()
    for i, event in enumerate(events):
        stream.feed(event.encode(), began + i * spacing)
    stream.end()
    return stream


def class_of(stream: Stream) -> ErrorClass | None:
    failure = stream.failure(200, EVENT_STREAM, PLACE, None)
    return failure.error_class if failure else None


@pytest.mark.parametrize(
    "delta",
    [
        {"content": " "},
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "aGk="}]},
        {"thinking": "hm"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"refusal": "no"},
        {"content": None, "tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"name": "f"}},
    ],
)
def test_the_first_token_counts_in_any_channel(delta: dict[str, Any]) -> None:
    stream = read(ROLE, PING, chunk({"content": ""}), chunk(delta), STOP, DONE)
    assert (stream.first_token, stream.last) == (3, 4)
    assert stream.done
    assert class_of(stream) is None


@pytest.mark.parametrize(
    "delta",
    [
        {"content": ""},
        {"content": None},
        {"content": [{"type": "text", "text": ""}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": ""}]},
        {"tool_calls": []},
        {"tool_calls": [{}]},
        None,
    ],
)
def test_what_holds_no_token_is_none(delta: dict[str, Any] | None) -> None:
    stream = read(ROLE, chunk(delta), STOP, DONE)
    assert stream.first_token is None
    assert class_of(stream) is ErrorClass.STREAM_WITHOUT_TOKEN


def test_a_token_without_text_is_one_where_the_engine_counts_along() -> None:
    stream = read(
        chunk({"role": "assistant", "content": ""}, usage=counted(0)),
        chunk({"content": ""}, usage=counted(1)),
        chunk({"content": "é"}, usage=counted(2)),
        chunk({"content": ""}, "stop", usage=counted(3)),
        chunk(usage=counted(3)),
        DONE,
    )
    assert stream.first_token == 1
    assert stream.tokens("completion_tokens") == 3


def test_a_usage_at_the_end_does_not_make_the_end_the_first_token() -> None:
    stream = read(ROLE, chunk({"content": ""}, "stop", usage=counted(5)), chunk(usage=counted(5)), DONE)
    assert class_of(stream) is ErrorClass.STREAM_WITHOUT_TOKEN


@pytest.mark.parametrize(
    ("details", "tokens", "state"),
    [
        ({}, None, CachedState.ABSENT),
        ({"prompt_tokens_details": None}, None, CachedState.NULL),
        ({"prompt_tokens_details": {}}, None, CachedState.EMPTY),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None, CachedState.NULL),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0, CachedState.REPORTED),
        ({"prompt_tokens_details": {"cached_tokens": 7}}, 7, CachedState.REPORTED),
        ({"prompt_tokens_details": {"cached_tokens": 7.0}}, 7, CachedState.REPORTED),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, None, CachedState.NULL),
        ({"prompt_tokens_details": {"cached_tokens": True}}, None, CachedState.NULL),
        ({"prompt_tokens_details": {"cached_tokens": "7"}}, None, CachedState.NULL),
    ],
)
def test_cached_tokens_are_one_of_four_facts(details: Any, tokens: int | None, state: CachedState) -> None:
    stream = read(ROLE, chunk({"content": "ok"}, "stop"), chunk(usage=counted(1, **details)), chunk(usage=None), DONE)
    assert stream.cached == (tokens, state)
    assert stream.tokens("prompt_tokens") == 9


@pytest.mark.parametrize(
    "last",
    [
        counted(2),
        counted(2, prompt_tokens_details=None),
        counted(2, prompt_tokens_details={}),
        counted(2, prompt_tokens_details={"cached_tokens": None}),
        {"completion_tokens": 2},
    ],
)
def test_a_later_usage_takes_nothing_back_that_it_is_silent_of(last: dict[str, Any]) -> None:
    first = counted(1, prompt_tokens_details={"cached_tokens": 7})
    stream = read(ROLE, chunk({"content": "a"}, usage=first), chunk({"content": "b"}, "stop"), chunk(usage=last), DONE)
    assert stream.cached == (7, CachedState.REPORTED)
    assert (stream.tokens("prompt_tokens"), stream.tokens("completion_tokens")) == (9, 2)


@pytest.mark.parametrize("spacing", [0.0, 0.03])
def test_a_stream_that_was_held_back_is_marked(spacing: float) -> None:
    stream = read(ROLE, *TOKENS, STOP, DONE, began=0.3, spacing=spacing)
    assert (Mark.BUFFERED in stream.marks({}, 0.0)) == (spacing == 0)


def test_a_single_token_is_not_held_back() -> None:
    stream = read(ROLE, TOKENS[0], chunk({}, "length"), chunk(usage=counted(1)), DONE, began=0.3, spacing=0)
    assert stream.marks({"max_tokens": 1}, 0.0) == frozenset()


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("extra", "finish", "produced", "marks"),
    [
        ({}, "length", 8, set()),
        ({}, "length", 5, {Mark.CAPPED}),
        ({}, "stop", 5, set()),
        ({"min_tokens": 6}, "stop", 5, {Mark.CAPPED}),
        ({"min_tokens": 5}, "stop", 5, set()),
        ({"ignore_eos": True}, "stop", 5, {Mark.CAPPED}),
    ],
)
def test_fewer_tokens_than_asked_for_are_marked(
    limit: str, extra: dict[str, Any], finish: str, produced: int, marks: set[Mark]
) -> None:
    stream = read(chunk({"content": "a"}, finish), chunk(usage=counted(produced)), DONE)
    assert stream.marks({limit: 8, **extra}, 0.0) == marks


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), ErrorClass.STREAM_WITHOUT_TOKEN),
        ((ROLE, TOKENS[0]), ErrorClass.STREAM_TRUNCATED),
        ((TOKENS[0], '{"error": {"message": "oom"}}'), ErrorClass.ERROR_IN_200),
        ((TOKENS[0], 'data: {"error": {"message": "oom"}}\n\n', DONE), ErrorClass.ERROR_IN_200),
        ((TOKENS[0], '{"error": {"message": "oom"}}\n', DONE), ErrorClass.ERROR_IN_200),
        ((TOKENS[0], 'hint\n{"error": "oom"}\n', STOP, DONE), ErrorClass.ERROR_IN_200),
        ((TOKENS[0], "event: error\ndata: upstream timeout\n\n", DONE), ErrorClass.ERROR_IN_200),
        (("event:error\ndata: upstream timeout\n\n",), ErrorClass.ERROR_IN_200),
        ((TOKENS[0], chunk({}, "error"), DONE), ErrorClass.ERROR_IN_200),
        (('data: {"choices": [{"delta": {}, "error": {"message": "down"}}]}\n\n', DONE), ErrorClass.ERROR_IN_200),
        (("data: what\n\n", DONE), ErrorClass.ERROR_IN_200),
        ((TOKENS[0], "hint\n", STOP, DONE), None),
        (("event: message\n\n", TOKENS[0], STOP, DONE), None),
        (("<title>Log in</title>",), ErrorClass.HTML_LOGIN),
        ((TOKENS[0], STOP), None),
        ((TOKENS[0], DONE), None),
    ],
)
def test_what_is_no_whole_answer_has_its_class(events: tuple[str, ...], expected: ErrorClass | None) -> None:
    assert class_of(read(*events)) is expected


def test_what_broke_it_off_counts_before_its_end_only() -> None:
    broken = PLACE.failure(ErrorClass.TIMEOUT_TOTAL, "no complete answer")
    assert read(ROLE, TOKENS[0]).failure(200, {}, PLACE, broken) is broken
    assert read(ROLE, TOKENS[0], DONE).failure(200, {}, PLACE, broken) is None
    told = read(ROLE, TOKENS[0], '{"error": "oom"}\n').failure(200, {}, PLACE, broken)
    assert told
    assert told.message == "HTTP 200, but an error in it: oom"


WHOLE = "\ufeff" + "".join(
    ["event: x\r\nid: 1\r\n", ROLE, *TOKENS, "data: {\ndata: }\n\n", chunk({}, "stop", usage=counted(6)), DONE]
)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12).map(sorted), st.booleans(), st.booleans())
def test_an_answer_may_come_in_any_pieces(cuts: list[int], carriage_return: bool, blank: bool) -> None:
    pieces = [WHOLE[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    if carriage_return:
        pieces = [piece.replace("\n", "\r\n").replace("\r\r", "\r") for piece in pieces]
    if not blank:
        pieces = ["".join(pieces).replace("data: ", "data:")]
    stream = read(*pieces)
    assert class_of(stream) is None
    assert stream.tokens("completion_tokens") == 6


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("choices", "delta", "content", "tool_calls", "function", "usage", "completion_tokens")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.text(max_size=30) | JSON_VALUES.map(lambda value: f"data: {json.dumps(value)}\n\n"), max_size=6))
def test_nothing_that_a_server_sends_is_too_odd(events: list[str]) -> None:
    stream = read(*events)
    class_of(stream)
    stream.marks({"max_tokens": 8}, 0.0)
    assert stream.first_token is None or stream.first_token >= 0
