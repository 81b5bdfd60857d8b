"""What to measure -> the requests to send, in their order. Pure.

Every repetition has texts of its own, so that nothing is shared but what a mode means to share. The two arms get the
same requests in turn, and take turns at being first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from probes import plan
from probes.plan import Calibration

SENTENCES: Final = 40  # of the article's system prompt
ARTICLE_TOKENS: Final = 2800
LOAD_TOKENS: Final = 2000  # of the prefix that all clients share
ROUND_TOKENS: Final = 2000  # of each of several prefixes
SHARE_TOKENS: Final = 4096
CHAT_TOKENS: Final = 800  # of the system prompt of a chat
TURN_TOKENS: Final = 250  # of an answer in its history
PER_CLIENT: Final = 2  # requests of one client under load, in a repetition
PREFIXES: Final = (1, 2, 4, 5, 6, 8)
LEAST_UNDER_LOAD: Final = 20  # requests of all repetitions: as many as a 95th percentile takes
QUESTIONS: Final = (
    "What does the reference say first?",
    "Name one thing that it mentions twice.",
    "Which season does it speak of?",
    "Sum it up in one sentence.",
    "What is left out?",
)
Messages = tuple[Mapping[str, str], ...]


class Arm(StrEnum):
    """With reuse, and without."""

    ON = "on"
    OFF = "off"


class Kind(StrEnum):
    """What a request is to its mode."""

    PRIME = "prime"  # fills the cache or warms the server up, and is not reported
    COLD = "cold"  # a prefix that was never asked before
    WARM = "warm"


class Off(StrEnum):
    """How the second arm goes without reuse."""

    SERVER = "server"  # another server, which has it switched off
    SALT = "salt"  # the same server, a `cache_salt` of its own for each request
    HEAD = "head"  # the same server, a unique first word


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; `at` is the mode's variable: round, tokens, per cent, clients, turn or prefixes."""

    mode: str
    arm: Arm
    kind: Kind
    at: float
    repetition: int
    messages: Messages


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests sent by `width` clients at once."""

    asks: tuple[Ask, ...]
    width: int = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """Batches with a reading of the engine's counters before and after them; those of one name are summed up."""

    name: str
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """How much to measure. Lengths in tokens, shares in per cent, the limit in seconds."""

    modes: tuple[str, ...]
    repetitions: int
    lengths: tuple[int, ...]
    shares: tuple[int, ...]
    clients: tuple[int, ...]
    turns: int
    prefixes: tuple[int, ...] = PREFIXES
    prefix_tokens: int = ARTICLE_TOKENS
    share_tokens: int = SHARE_TOKENS
    limit: float | None = None
    max_tokens: int = 32


MODES: Final = ("article", "floor", "length", "share", "load", "chat", "prefixes")
QUICK: Final = ("article", "floor", "share", "load")
LENGTHS: Final = (64, 256, 1024, 2048, 4096, 7000)
SHARES: Final = (0, 25, 50, 75, 90, 100)
PROFILES: Final[Mapping[str, Profile]] = {
    "quick": Profile(QUICK, 6, (2048,), (0, 50, 100), (4,), 3, share_tokens=2048, limit=50.0, max_tokens=16),
    "article": Profile(("article", "floor"), 10, LENGTHS, SHARES, (1, 4, 16, 64), 6),
    "full": Profile(MODES, 10, LENGTHS, SHARES, (1, 4, 16, 64), 6),
}


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the texts of one run: `seed` makes them its own, `calibration` gives them their length."""

    seed: str
    calibration: Calibration

    def words(self, tokens: float) -> int:
        """Return how many words make that many tokens, at least one."""
        return max(1, round(tokens / self.calibration.per_word))

    def reference(self, name: str, tokens: float, shared: str = "", share: float = 0.0) -> str:
        """Return sentences of about that many tokens, the first `share` (0..1) of them those of the text `shared`."""
        count = self.words(tokens)
        head = plan.text(f"{self.seed}/{shared}", count).split()[: round(count * share)]
        words = head + plan.text(f"{self.seed}/{name}", count - len(head)).split() if len(head) < count else head
        length = max(2, self.words(ARTICLE_TOKENS) // SENTENCES)
        starts = range(0, count, length)
        return " ".join(f"{' '.join(words[start : start + length]).capitalize()}." for start in starts)


def stages(profile: Profile, writer: Writer) -> list[Stage]:
    """Return all that the profile asks for.

    Each mode takes one repetition in turn, so that every figure is spread over the whole run: what disturbs a part of
    it then shows in the intervals, where it would else have moved one mode alone and left no trace.
    """
    return [
        stage
        for repetition in range(profile.repetitions)
        for mode in profile.modes
        for stage in MAKERS[mode](profile, writer, (Arm.ON, Arm.OFF), repetition)
    ]


def warm_up(tokens: int, writer: Writer, arms: Sequence[Arm]) -> Stage:
    """Return a few requests of the largest shapes, which a server may have to get ready for."""
    texts = [writer.reference(f"up/{number}", tokens) for number in range(2)]
    turns = [(arm, text, question) for text in texts for question in QUESTIONS[:2] for arm in arms]
    return Stage("warm-up", tuple(_one(("warm-up", arm, Kind.PRIME, 0, 0), text, q) for arm, text, q in turns))


def _article(profile: Profile, writer: Writer, arms: Sequence[Arm], repetition: int) -> Iterator[Stage]:
    text = writer.reference(f"article/{repetition}", profile.prefix_tokens)
    batches = []
    for number, question in enumerate(QUESTIONS, 1):
        kind = Kind.WARM if number > 1 else Kind.COLD
        batches += [
            _one(("article", arm, kind, number, repetition), text, question)
            for arm in _turns(arms, repetition + number)
        ]
    yield Stage("article", tuple(batches))


def _floor(profile: Profile, writer: Writer, _: Sequence[Arm], repetition: int) -> Iterator[Stage]:
    """Cold and warm requests apart, so that the engine's means are of one sort."""
    text = writer.reference(f"floor/{repetition}", profile.prefix_tokens)
    for kind, question in ((Kind.COLD, QUESTIONS[0]), (Kind.WARM, QUESTIONS[1])):
        ask = _one(("floor", Arm.ON, kind, profile.prefix_tokens, repetition), text, question)
        yield Stage(f"floor, {kind}", (ask,))


def _length(profile: Profile, writer: Writer, arms: Sequence[Arm], repetition: int) -> Iterator[Stage]:
    batches = []
    for tokens in profile.lengths:
        text = writer.reference(f"length/{tokens}/{repetition}", tokens)
        for kind, question in ((Kind.COLD, QUESTIONS[0]), (Kind.WARM, QUESTIONS[1])):
            batches += [
                _one(("length", arm, kind, tokens, repetition), text, question) for arm in _turns(arms, repetition)
            ]
    yield Stage("length", tuple(batches))


def _share(profile: Profile, writer: Writer, _: Sequence[Arm], repetition: int) -> Iterator[Stage]:
    base = f"share/{repetition}"
    text = writer.reference(base, profile.share_tokens, base, 1)
    batches = [_one(("share", Arm.ON, Kind.PRIME, 100, repetition), text, QUESTIONS[0])]
    for percent in profile.shares[:: 1 if repetition % 2 else -1]:
        text = writer.reference(f"{base}/{percent}", profile.share_tokens, base, percent / 100)
        batches.append(_one(("share", Arm.ON, Kind.WARM, percent, repetition), text, QUESTIONS[1]))
    yield Stage("share", tuple(batches))


def _load(profile: Profile, writer: Writer, arms: Sequence[Arm], repetition: int) -> Iterator[Stage]:
    for clients in profile.clients:
        text = writer.reference(f"load/{clients}", LOAD_TOKENS)
        count = max(-(-LEAST_UNDER_LOAD // profile.repetitions), clients * PER_CLIENT)
        batches = []
        for arm in _turns(arms, clients.bit_length() + repetition):
            batches.append(_one(("load", arm, Kind.PRIME, clients, repetition), text, QUESTIONS[0]))
            asks = tuple(
                Ask("load", arm, Kind.WARM, clients, repetition, _messages(text, f"Client {number}: {QUESTIONS[1]}"))
                for number in range(count)
            )
            batches.append(Batch(asks, clients))
        yield Stage(f"load, {clients}", tuple(batches))


def _chat(profile: Profile, writer: Writer, arms: Sequence[Arm], repetition: int) -> Iterator[Stage]:
    """Make a chat whose earlier answers are ours: what the server generated is not sent back to it."""
    history: Messages = ({"role": "system", "content": writer.reference(f"chat/{repetition}", CHAT_TOKENS)},)
    batches = []
    for turn in range(1, profile.turns + 1):
        history += ({"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]},)
        kind = Kind.WARM if turn > 1 else Kind.COLD
        batches += [
            Batch((Ask("chat", arm, kind, turn, repetition, history),)) for arm in _turns(arms, repetition + turn)
        ]
        answer = writer.reference(f"chat/{repetition}/{turn}", TURN_TOKENS)
        history += ({"role": "assistant", "content": answer},)
    yield Stage("chat", tuple(batches))


def _prefixes(profile: Profile, writer: Writer, _: Sequence[Arm], repetition: int) -> Iterator[Stage]:
    """Ask all prefixes once and then once more in the same order, which a cache too small for them serves worst."""
    for count in profile.prefixes:
        texts = [writer.reference(f"prefixes/{count}/{repetition}/{number}", ROUND_TOKENS) for number in range(count)]
        for kind, question in ((Kind.COLD, QUESTIONS[0]), (Kind.WARM, QUESTIONS[1])):
            asks = (_one(("prefixes", Arm.ON, kind, count, repetition), text, question) for text in texts)
            yield Stage(f"prefixes, {count}, {kind}", tuple(asks))


MAKERS: Final = {
    "article": _article,
    "floor": _floor,
    "length": _length,
    "share": _share,
    "load": _load,
    "chat": _chat,
    "prefixes": _prefixes,
}


def _turns(arms: Sequence[Arm], number: int) -> Sequence[Arm]:
    return arms if number % 2 else arms[::-1]


def _one(of: tuple[str, Arm, Kind, float, int], text: str, question: str) -> Batch:
    return Batch((Ask(*of, _messages(text, question)),))


def _messages(text: str, question: str) -> Messages:
    return plan.messages(text, question)
