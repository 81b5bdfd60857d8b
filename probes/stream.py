"""The bytes of a streamed chat completion, as they arrive -> its first token, its usage, or why it is no answer. Pure.

Times are those of the caller's clock, in seconds.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from probes import classify
from probes.fault import Fault, fault_in, objects, parsed
from probes.outcome import MAX_READ, ErrorClass, Failure, Place

MAX_KEPT: Final = 4 * 2**20  # bytes of an answer that is no stream
TOKEN_SPACING: Final = 0.001  # seconds; tokens closer than this were held back and came together
LATE: Final = 0.02  # seconds; what is complete before that need not have been held back
MIN_CHUNKS: Final = 4  # of a stream that can be seen to have been held back
NOT_DATA: Final = (b":", b"id:", b"retry:")  # lines of an event stream that say nothing here
CHANNELS: Final = (
    "content",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "refusal",
)
PARTS: Final = ("text", "thinking", "summary", "data")  # of a channel that has more than text
MAX_DEPTH: Final = 4  # of such parts within parts
BROKEN_OFF: Final = "the answer broke off before its end"


class CachedState(StrEnum):
    """What the usage says of cached tokens: a number, or nothing in one of three ways."""

    REPORTED = "reported"
    NULL = "null"
    EMPTY = "empty"
    ABSENT = "absent"


class Mark(StrEnum):
    """Why a successful result is to be read with care."""

    BUFFERED = "buffered"  # the stream came in one piece: the TTFT is the time of the whole answer
    CAPPED = "capped"  # fewer tokens than asked for


class Stream:
    """Server-sent events as they arrive. What is no event is kept as `text`: HTML, or JSON without a frame."""

    def __init__(self) -> None:
        self.first_token: float | None = None  # when it arrived
        self.last: float | None = None  # when the last chunk arrived
        self.done = False  # nothing more is to come
        self._usage: dict[str, Any] = {}
        self._finish_reason: str | None = None
        self._fault: Fault | None = None
        self._chunks = 0
        self._token_chunks = 0
        self._stray = bytearray()
        self._rest = b""
        self._data: list[bytes] = []
        self._event_name = b""
        self._arrival = 0.0

    def feed(self, piece: bytes, at: float) -> None:
        """Take bytes that arrived at that time."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._line(line.rstrip(b"\r"), at)

    def end(self) -> None:
        """Take what no line break followed."""
        self._line(self._rest, self._arrival)
        self._line(b"", self._arrival)

    @property
    def text(self) -> str:
        """What came that is no event."""
        return self._stray.decode(errors="replace").strip()

    def tokens(self, name: str) -> int | None:
        """Return the number of that name in the usage, such as `prompt_tokens`."""
        return _number(self._usage, name)

    @property
    def cached(self) -> tuple[int | None, CachedState]:
        """The cached tokens of the usage; where there is no number, how it is missing."""
        details = self._usage.get("prompt_tokens_details", CachedState.ABSENT)
        number = _number(details, "cached_tokens")
        if number is not None:
            return number, CachedState.REPORTED
        if details is None or (isinstance(details, dict) and "cached_tokens" in details):
            return None, CachedState.NULL
        return None, CachedState.EMPTY if isinstance(details, dict) else CachedState.ABSENT

    def marks(self, body: Mapping[str, Any], began: float) -> frozenset[Mark]:
        """Say what is odd about the answer to this body, sent at that time."""
        marks = {Mark.BUFFERED} if self._held_back(began) else set()
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        whole = self._finish_reason == "length" or body.get("ignore_eos")
        expected = limit if whole else body.get("min_tokens")
        produced = self.tokens("completion_tokens")
        if produced is not None and isinstance(expected, int) and produced < expected:
            marks.add(Mark.CAPPED)
        return frozenset(marks)

    def failure(self, status: int, headers: Mapping[str, str], place: Place, broken: Failure | None) -> Failure | None:
        """Say why this is no whole answer, if so; `broken` is what ended it early."""
        if fault := self._fault or self._stray_fault():
            return classify.of_fault(fault, place)
        if broken and not self.done:
            return broken
        complete = self.done or self._finish_reason is not None
        if complete and self.first_token is not None:
            return None
        if self._stray or not self._chunks:
            return classify.of_answer(status, headers, self.text, place)
        if complete:
            return place.failure(ErrorClass.STREAM_WITHOUT_TOKEN, "a stream without a token", status=status)
        return place.failure(ErrorClass.STREAM_TRUNCATED, BROKEN_OFF, status=status)

    def _held_back(self, began: float) -> bool:
        """Whether the tokens came together, at the end of an answer that took its time."""
        if self.first_token is None or self.last is None or self._chunks < MIN_CHUNKS:
            return False
        span = self.last - self.first_token
        return self.last - began >= LATE and span < TOKEN_SPACING * (self._token_chunks - 1)

    def _line(self, line: bytes, at: float) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:])
            self._arrival = at
        elif line.startswith(b"event:"):
            self._event_name = line[6:]
        elif not line:
            if self._data:
                data = b"\n".join(self._data).strip()
                self._data.clear()
                self._event(data)
            self._event_name = b""
        elif not line.startswith(NOT_DATA):
            self._keep(line)

    def _stray_fault(self) -> Fault | None:
        """Return the error that came without a frame, as a whole or in one line of what came so."""
        texts = (self.text, *self.text.splitlines()) if self._stray else ()
        return next((fault for text in texts if (fault := fault_in(parsed(text)))), None)

    def _keep(self, text: bytes) -> None:
        if len(self._stray) < MAX_KEPT:
            self._stray += text[:MAX_KEPT] + b"\n"

    def _event(self, data: bytes) -> None:
        if data.startswith(b"[DONE]"):
            self.done = True
            return
        text = data.decode(errors="replace")
        chunk = parsed(text)
        if b"error" in self._event_name:
            self._fault = self._fault or fault_in(chunk) or Fault(text[:MAX_READ])
        if not isinstance(chunk, dict):
            self._keep(data)
            return
        self._chunks += 1
        self.last = self._arrival
        self._fault = self._fault or fault_in(chunk)
        usage = chunk.get("usage")
        choices = objects(chunk.get("choices"))
        if any(map(_bears_text, choices)) or (choices and self._counted(usage)):
            self._token_chunks += 1
            if self.first_token is None:
                self.first_token = self._arrival
        for choice in choices:
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        if isinstance(usage, dict) and usage:
            self._usage = _merged(self._usage, usage)

    def _counted(self, usage: object) -> bool:
        """Whether the engine, which counted in an earlier chunk too, says that there is a token, be it without text."""
        return bool(self._usage) and (_number(usage, "completion_tokens") or 0) >= 1


def _bears_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    functions = [call.get("function") for call in objects(delta.get("tool_calls"))] + [delta.get("function_call")]
    called = any(function.get("name") or function.get("arguments") for function in objects(functions))
    return called or any(_says(delta.get(channel)) for channel in CHANNELS)


def _says(value: object, depth: int = MAX_DEPTH) -> bool:
    """Whether there is text in what a channel holds, in any of its parts."""
    if isinstance(value, str):
        return bool(value)
    parts = value if isinstance(value, list) else [value.get(name) for name in PARTS] if isinstance(value, dict) else []
    return depth > 0 and any(_says(part, depth - 1) for part in parts)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    """Return both: the new where they differ, but nothing that was known is lost to a null or to silence."""
    merged = dict(old)
    for name, value in new.items():
        known = merged.get(name)
        if depth and isinstance(value, dict) and isinstance(known, dict):
            merged[name] = _merged(known, value, depth - 1)
        elif value is not None or name not in merged:
            merged[name] = value
    return merged


def _number(fields: object, name: str) -> int | None:
    """Return a count; some gateways make a float of it, and what is none at all was not told."""
    value = fields.get(name) if isinstance(fields, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
