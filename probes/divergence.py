"""Two prompts, or two lists of token ids, that should share a prefix -> where they part, and what usually does that.

Pure. Prompts are private: of each, no more than 80 characters around the difference are ever given out.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

BEFORE: Final = 38  # characters of context: a UUID that differs in its last character is still whole
AFTER: Final = 40
CHARACTERS_PER_TOKEN: Final = 4  # of English text; other scripts have fewer
HALF: Final = 0.5  # of the shorter prompt: prompts that share less were not made to share
NEARLY_ALL: Final = 0.9  # the same, of which nothing is to be gained
SURELY_SHIFTED: Final = 3  # tokens in common after the first one is left out: no chance
AGAIN: Final = 20  # characters that are the same again at the end, which stand there for nothing
REACH: Final = 128  # characters on either side in which a pattern is sought; what is shown of it is less

Message = Mapping[str, object]
Prompt = str | Sequence[Message]


class Kind(StrEnum):
    """What makes prompts differ that their author takes for the same."""

    ISO_DATE = "iso_date"
    TIME_OF_DAY = "time_of_day"
    CALENDAR_DATE = "calendar_date"  # the name of a day or month
    UNIX_TIME = "unix_time"
    UUID = "uuid"
    USER = "user"
    COUNTER = "counter"
    ID = "id"  # hexadecimal, or named as an id
    NONCE = "nonce"  # looks random
    LINE_ENDING = "line_ending"
    WHITESPACE = "whitespace"
    TOOL_ORDER = "tool_order"
    KEY_ORDER = "key_order"


PATTERNS: Final = {
    Kind.ISO_DATE: r"(?<!\d)\d{4}([-/.])\d{1,2}\1\d{1,2}(?!\d)|\d{4}年\d{1,2}月\d{1,2}日",
    Kind.TIME_OF_DAY: r"(?<![\d:])\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?![\d:])",
    Kind.CALENDAR_DATE: r"(?i)\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tue|wed|thu|fri|sat|sun)\b"
    r"|\b(?:\d{1,2}\.? )?(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?(?: \d{1,2}\b)?(?:,? \d{4}\b)?|(?:星期|周)[一二三四五六日天]",
    Kind.UNIX_TIME: r"(?<!\d)(?:1[4-9]|2[0-2])\d{8}(?:\d{3}|\d{6}|\d{9}|\.\d+)?(?!\d)",
    Kind.UUID: r"(?i)(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])",
    Kind.USER: r"(?i)(?:\b(?:user|customer|account)(?:[ _-]?(?:name|id))?|(?<![\"\w])name|\be?mail|用户名?)[\"']?"
    r"\s?[:=\uff1a]\s?[\"']?[^\s\"',;<]+",
    Kind.COUNTER: r"(?i)\b(?:turn|round|step|iteration|attempt|try|page|message|request|query|session|run|count|no)"
    r"\b\.?[\"']?\s?[:=#]?\s?#?\d+\b|第\s?\d+\s?[轮次步页条]",
    Kind.ID: r"(?i)\b(?:0x)?(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b"
    r"|\b(?:\w{1,20}[_-])?id[\"']?\s?[:=]\s?[\"']?[\w-]{4,}|\b(?:req|chatcmpl|cmpl|call|trace|session)[-_][\w-]{4,}",
    Kind.NONCE: r"(?<![\w-])(?=[\w-]*\d[A-Za-z_-]*\d|[\w-]*[a-z][A-Z]{2}|[\w-]*[A-Z]\d)(?=[\w-]*[A-Za-z])[\w-]{8,}",
}
COMPILED: Final = {kind: re.compile(pattern) for kind, pattern in PATTERNS.items()}
GENERIC: Final = (Kind.ID, Kind.NONCE)  # said only where nothing more telling fits
NAME: Final = re.compile(r"\"name\"\s?:\s?\"([^\"]*)\"")
QUOTED: Final = re.compile(r"\"[^\"]*\"")
WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Suspect:
    """What the difference looks like, and the text of it on each side; "" where that side has none."""

    kind: Kind
    left: str = ""
    right: str = ""


class Place(StrEnum):
    """Where two prompts part, as far as their messages are known."""

    TEXT = "text"
    EARLIER_MESSAGE = "earlier_message"
    LAST_MESSAGE = "last_message"  # of both, or of the one that goes on


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two prompts part. Characters count from 0; None = they are the same.

    `token_ish` is a quarter of the characters, a rough figure; `shared_share` is the common part of the longer
    prompt, 0..1, `shorter_share` of the shorter one, and `same_again` the characters that are common at their ends.
    Message and role are known of message lists only, whose characters are those of a ChatML rendering; `place` says
    where their messages part.
    """

    first_difference_char: int | None
    token_ish: int | None = None
    message_index: int | None = None
    role: str = ""
    shared_share: float = 1.0
    shorter_share: float = 1.0
    same_again: int = 0
    place: Place = Place.TEXT
    left_excerpt: str = ""
    right_excerpt: str = ""
    suspects: tuple[Suspect, ...] = ()

    double_bos: ClassVar[bool] = False
    remedy: ClassVar[str] = "move what varies behind the shared text, to the last message"

    @property
    def volatile(self) -> bool:
        """Whether something varies before text that is to be shared: a usual suspect, or prompts that part early.

        Turns of one chat, and questions behind one long text, part where they should.
        """
        if self.first_difference_char is None or self.shorter_share == 1:
            return False
        if self.suspects and (self.same_again >= AGAIN or self.shorter_share < HALF):
            return True
        if self.place is Place.LAST_MESSAGE:
            return False
        if self.place is Place.EARLIER_MESSAGE:
            return True
        return self.shorter_share < (NEARLY_ALL if self.suspects else HALF)

    @property
    def numbers(self) -> Mapping[str, float | int | str]:
        """What the finding rests on."""
        return {"first_difference_char": self.first_difference_char or 0}

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        if self.first_difference_char is None:
            return "The prompts are the same."
        place = f"character {self.first_difference_char} (about token {self.token_ish}, at 4 characters a token)"
        if self.message_index is not None:
            place += f", in message {self.message_index} ({self.role})"
        kinds = " or ".join(suspect.kind.replace("_", " ") for suspect in self.suspects)
        said = f"The prompts share {self.shared_share:.0%} and part at {place}"
        said += f': "{self.left_excerpt}" against "{self.right_excerpt}"'
        return f"{said}; it looks like {kinds}." if kinds else f"{said}."


def compare(left: Prompt, right: Prompt) -> Divergence:
    """Find where two prompts part, each a rendered text or a list of messages."""
    left_parts, right_parts = _parts(left), _parts(right)
    left_text, right_text = "".join(left_parts), "".join(right_parts)
    if left_text == right_text:
        return Divergence(None)
    at = first_difference(left_text, right_text)
    shorter = min(len(left_text), len(right_text))
    index: int | None = None
    role, place = "", Place.TEXT
    if not isinstance(left, str) and not isinstance(right, str):
        index = first_difference(left_parts, right_parts)
        message = (right if index < len(right) else left)[index]
        role = str(message.get("role", ""))
        place = Place.LAST_MESSAGE if index >= min(len(left), len(right)) - 1 else Place.EARLIER_MESSAGE
    return Divergence(
        at,
        at // CHARACTERS_PER_TOKEN,
        index,
        role,
        at / max(len(left_text), len(right_text)),
        at / shorter if shorter else 1.0,
        min(first_difference(left_text[::-1], right_text[::-1]), shorter - at),
        place,
        _excerpt(left_text, at),
        _excerpt(right_text, at),
        tuple(_suspects(left_text, right_text, at)),
    )


def first_difference(left: Sequence[object], right: Sequence[object]) -> int:
    """Return the index of the first item that differs; the length of the shorter where it starts the longer."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))


class TokenFinding(StrEnum):
    """How two lists of token ids, or their lengths, relate."""

    SAME = "same"
    DOUBLE_BOS = "double_bos"  # the first token twice in one of them: no block in common behind it
    EXTENDED = "extended"  # one starts the other
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class TokenDivergence:
    """What two tokenizations of a prompt show; None = no difference, or its place is not known."""

    finding: TokenFinding
    sentence: str
    first_difference_token: int | None = None
    shorter_share: float = 1.0  # the common part of the shorter list, 0..1

    @property
    def double_bos(self) -> bool:
        """Whether one of them has its first token twice."""
        return self.finding is TokenFinding.DOUBLE_BOS

    @property
    def volatile(self) -> bool:
        """Whether blocks are not shared that should be."""
        return self.double_bos or (self.finding is TokenFinding.DIFFERENT and self.shorter_share < HALF)

    @property
    def remedy(self) -> str:
        """What to do, where they part early."""
        one = "send everything to the chat endpoint, or completions with add_special_tokens false"
        return one if self.double_bos else "render both prompts and compare them: --prompt A.txt --prompt B.txt"

    @property
    def numbers(self) -> Mapping[str, float | int | str]:
        """What the finding rests on."""
        at = self.first_difference_token
        return {} if at is None else {"first_difference_token": at}


def compare_tokens(left: Sequence[int], right: Sequence[int]) -> TokenDivergence:
    """Compare the token ids of one prompt by two ways, such as the chat and the completions endpoint."""
    shorter, longer = sorted((list(left), list(right)), key=len)
    if shorter == longer:
        return TokenDivergence(TokenFinding.SAME, "The token ids are the same.")
    at = first_difference(left, right)
    share = at / len(shorter) if shorter else 1.0
    if _begins_twice(left, right) or _begins_twice(right, left):
        said = f"One prompt starts with token {left[0]} twice: double BOS, so no block is shared."
        return TokenDivergence(TokenFinding.DOUBLE_BOS, f"{said} Use one endpoint for all.", at, share)
    if at == len(shorter):
        return TokenDivergence(TokenFinding.EXTENDED, f"One prompt goes on where the other ends, at token {at}.", at)
    said = f"The token ids differ from token {at} on: {share:.0%} of the shorter are shared."
    return TokenDivergence(TokenFinding.DIFFERENT, said, at, share)


def _begins_twice(doubled: Sequence[int], single: Sequence[int]) -> bool:
    """Whether the one is the other with its first token twice; their ends may differ, or be cut off."""
    if not single or list(doubled[:2]) != [single[0]] * 2 or single[0] in single[1:2]:
        return False
    common = first_difference(doubled[1:], single)
    return common == min(len(doubled) - 1, len(single)) or common >= SURELY_SHIFTED


def compare_lengths(left: int, right: int) -> TokenDivergence:
    """Judge by `usage.prompt_tokens` alone, in tokens, as two endpoints report it of the same prompt."""
    apart = abs(left - right)
    if not apart:
        return TokenDivergence(TokenFinding.SAME, "prompt_tokens are the same at both endpoints.")
    said = f"prompt_tokens differs by {apart} between endpoints"
    if apart == 1:
        return TokenDivergence(TokenFinding.DOUBLE_BOS, f"{said}: double BOS, most likely.")
    return TokenDivergence(TokenFinding.DIFFERENT, f"{said}: they render the prompt differently.")


def _parts(prompt: Prompt) -> list[str]:
    return [prompt] if isinstance(prompt, str) else [_rendered(message) for message in prompt]


def _rendered(message: Message) -> str:
    """Write a message as ChatML would; what is no text, in the order of its keys."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    others = {key: value for key, value in message.items() if key not in {"role", "content"}}
    text += json.dumps(others, ensure_ascii=False) if others else ""
    return f"<|im_start|>{message.get('role', '')}\n{text}<|im_end|>\n"


def _excerpt(text: str, at: int) -> str:
    """Show the text around a place in at most 80 printable characters."""
    before = [_visible(character) for character in text[max(at - BEFORE, 0) : at]]
    after = [_visible(character) for character in text[at : at + AFTER]]
    while sum(map(len, before)) > BEFORE:
        del before[0]
    while sum(map(len, after)) > AFTER:
        del after[-1]
    start, end = "…" * (at > len(before)), "…" * (at + len(after) < len(text))
    return "".join((start, *before, *after, end))


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def _suspects(left: str, right: str, at: int) -> Iterator[Suspect]:
    if reformatted := _whitespace(left, right, at) or _order(left, right):
        yield reformatted
        return
    found = [
        Suspect(kind, *texts)
        for kind, pattern in COMPILED.items()
        if any(texts := [_match(pattern, text, at) for text in (left, right)])
    ]
    telling = [suspect for suspect in found if suspect.kind not in GENERIC]
    yield from telling or found[:1]


def _match(pattern: re.Pattern[str], text: str, at: int) -> str:
    """Return what the pattern finds at that place, as far as an excerpt may show it."""
    for found in pattern.finditer(text, max(at - REACH, 0), at + REACH):
        if found.start() <= at < found.end():
            return text[max(found.start(), at - BEFORE) : min(found.end(), at + AFTER)]
    return ""


def _whitespace(left: str, right: str, at: int) -> Suspect | None:
    blanks, rests = [], []
    for text in (left[at : at + AFTER], right[at : at + AFTER]):
        rests.append(text.lstrip()[: AFTER // 2])
        blanks.append(text[: len(text) - len(text.lstrip())])
    if rests[0] != rests[1] or blanks[0] == blanks[1]:
        return None
    kind = Kind.LINE_ENDING if ("\r" in blanks[0]) != ("\r" in blanks[1]) else Kind.WHITESPACE
    return Suspect(kind, *("".join(map(_visible, blank))[:AFTER] for blank in blanks))


def _order(left: str, right: str) -> Suspect | None:
    """Recognise JSON of the same strings in another order; they are not given out, they may be long."""
    if len(left) != len(right) or Counter(WORD.findall(left)) != Counter(WORD.findall(right)):
        return None
    strings, others = QUOTED.findall(left), QUOTED.findall(right)
    if strings == others or Counter(strings) != Counter(others):
        return None
    return Suspect(Kind.KEY_ORDER if NAME.findall(left) == NAME.findall(right) else Kind.TOOL_ORDER)
