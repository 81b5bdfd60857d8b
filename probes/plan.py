"""A seed, the reuse unit and the number of ranks -> the prompts of one canary cycle. Pure.

No tokenizer of the host is assumed: a prompt is made of short words, and how many tokens a word costs is learned
from `usage.prompt_tokens` of what was sent before. The shared prefix is the same in every cycle, its tail is
never the same twice, and nothing that varies stands before the tail - but in the control, where the very first
word varies.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

WORDS: Final = (
    *("river", "stone", "green", "quiet", "window", "paper", "seven", "light", "garden", "winter", "table", "copper"),
    *("market", "bridge", "silver", "orange", "letter", "summer", "forest", "yellow", "engine", "harbour", "music"),
)
UNITS: Final = 4  # reuse units in a prompt: fewer leave too little between warm and cold
FEWEST_UNITS: Final = 2  # where large units would cost more than may be used: reuse shows, TTFT shows less of it
MIN_TOKENS: Final = 1000  # below that TTFT shows little of what reuse is worth
MAX_TOKENS: Final = 8  # generated tokens: enough to see a stream, too few to hide the effect
DEFAULT_UNIT: Final = 16  # vLLM's default block size, where the engine does not say
FIRST_GUESS: Final = 1.5  # tokens a word costs before anything is known
TAIL: Final = "Ticket {nonce}: answer with one word."


class Arm(StrEnum):
    """What a request of the canary finds out."""

    RETAINED = "retained"  # did the prefix survive since the last cycle
    CONTROL = "control"  # what a miss costs now
    REPEAT = "repeat"  # does reuse work at all
    CURVE = "curve"  # what a share of the prompt is worth; no part of a cycle's own findings


@dataclass(frozen=True, slots=True)
class Calibration:
    """Tokens of a prompt = fixed + per_word * words, as learned; uncertain until two lengths were seen."""

    per_word: float = FIRST_GUESS
    fixed: float = 0.0
    seen: tuple[tuple[int, int], ...] = ()  # words sent, prompt tokens reported

    def words_for(self, tokens: int) -> int:
        """Return the number of words whose prompt has about that many tokens."""
        return max(1, round((tokens - self.fixed) / self.per_word))

    def learn(self, words: int, tokens: int) -> "Calibration":
        """Take a reported length in; two lengths apart give the line through them."""
        seen = ((words, tokens), *(pair for pair in self.seen if pair[0] != words))[:2]
        if len(seen) == 1:
            return Calibration(tokens / words, 0.0, seen)
        (w1, t1), (w2, t2) = seen
        per_word = (t1 - t2) / (w1 - w2)
        if per_word <= 0:
            return Calibration(tokens / words, 0.0, seen[:1])
        return Calibration(per_word, t1 - per_word * w1, seen)


@dataclass(frozen=True, slots=True)
class Planned:
    """One request to send, and which rank it is meant for (None = whichever takes it)."""

    arm: Arm
    messages: tuple[Mapping[str, str], ...]
    words: int
    rank: str | None = None
    measures: bool = True  # False: sent to learn a length, not to time it
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        """The header by which vLLM's front end pins a request to a data-parallel rank."""
        return {} if self.rank is None else {"X-data-parallel-rank": self.rank}

    @property
    def most_tokens(self) -> int:
        """No tokenizer makes more tokens than bytes; the chat template adds a few."""
        return sum(len(message["content"].encode()) + 32 for message in self.messages)


@dataclass(frozen=True, slots=True)
class Shape:
    """What an engine is to the plan: its reuse unit in tokens, its data-parallel ranks (one or none: no pinning).

    `salted` says that it takes `cache_salt`, by which a control can be the same text and yet cold.
    """

    unit: int = DEFAULT_UNIT
    ranks: tuple[str, ...] = ()
    salted: bool = False


SHAPE: Final = Shape()


def target_tokens(unit: int, most: float = math.inf) -> int:
    """Return the length to aim at: four reuse units or more, and never near a multiple of one.

    Where that would be more than `most` tokens, it is as few units as still show reuse.
    """
    fewest = -(-MIN_TOKENS // unit)
    units = max(UNITS, fewest)
    while units > max(FEWEST_UNITS, fewest) and units * unit + unit // 2 > most:
        units -= 1
    return units * unit + unit // 2


def cycle(seed: str, number: int, words: int, shape: Shape = SHAPE, pad: int = 0) -> tuple[Planned, ...]:
    """Return the requests of one cycle in the order in which to send them.

    `words` is the length of the shared prefix, `pad` what is added to each tail to keep a prompt off a whole
    number of reuse units.
    """
    pins: tuple[str | None, ...] = shape.ranks if len(shape.ranks) > 1 else (None,)
    shared = text(seed, words)
    nonces = (nonce(seed, number, index) for index in itertools.count())

    def ask(start: str, unique: str) -> tuple[Mapping[str, str], ...]:
        return messages(start, TAIL.format(nonce=unique) + " Now." * pad)

    retained = [Planned(Arm.RETAINED, ask(shared, next(nonces)), words, pin) for pin in pins]
    fresh = next(nonces)
    control = (
        Planned(Arm.CONTROL, ask(shared, fresh), words, pins[0], extra={"cache_salt": fresh})
        if shape.salted
        else Planned(Arm.CONTROL, ask(f"{fresh} {text(seed, words - 1)}", fresh), words, pins[0])
    )
    repeats = [Planned(Arm.REPEAT, ask(shared, next(nonces)), words, pin) for pin in pins * (2 // len(pins) or 1)]
    return (*retained, control, *repeats)


def requests(shape: Shape) -> int:
    """Return the number of requests of a cycle."""
    return len(cycle("", 0, 1, shape))


def text(seed: str, words: int) -> str:
    """Return that many words, always the same for a seed; a longer text starts with the shorter one."""
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    return " ".join(chance.choice(WORDS) for _ in range(words))


def nonce(seed: str, number: int, index: int) -> str:
    """Return a mark that no other request of this seed has."""
    return hashlib.sha256(f"{seed}/{number}/{index}".encode()).hexdigest()[:12]


def messages(shared: str, unique: str) -> tuple[Mapping[str, str], ...]:
    """Return a chat with the shared part in front and the unique one behind it."""
    return ({"role": "system", "content": shared}, {"role": "user", "content": unique})
