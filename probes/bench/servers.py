"""One server of the bench: its clients, its engine's counters, and how its arm goes without reuse."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from exporter.collector import Collector
from exporter.scrape import Scrape
from probes import plan
from probes.bench.steps import Ask, Off
from probes.client import Client, Mark, Request, Result
from probes.config import CanaryTarget
from probes.plan import Calibration

LEARNING_WORDS: Final = (40, 400)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one request took and said: times in seconds, lengths in tokens. `ttft` is None exactly if it failed."""

    mode: str
    arm: str
    kind: str
    at: float
    repetition: int
    ttft: float | None
    total: float
    started_at: float  # Unix seconds
    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None  # None: not told
    buffered: bool = False  # the stream came in one piece
    error: str = ""


@dataclass(slots=True)
class Server:
    """A server to ask. `clients` grow with the load; each keeps one connection."""

    target: CanaryTarget
    max_tokens: int
    timeout: float  # seconds, of one request
    clients: list[Client] = field(default_factory=list)
    closed: bool = False
    _engine: Collector | None = None

    def __post_init__(self) -> None:
        """Connect to nothing yet. Raises Failed if the CA file is unusable."""
        if self.target.engine:
            self._engine = Collector.of_one(self.target.engine)
        self.widen(1)

    def widen(self, width: int) -> None:
        """Have at least that many clients."""
        limits = {"first_token_timeout": self.timeout, "total_timeout": self.timeout}
        while len(self.clients) < width and not self.closed:
            self.clients.append(Client(self.target.endpoint, names=self.target.names, **limits))

    def scrape(self) -> Scrape | None:
        """Read the engine's counters; None where there is no engine in reach."""
        return self._engine.scrape()[0] if self._engine else None

    def send(self, messages: tuple[object, ...], client: int = 0, salt: str = "") -> Result:
        """Send one chat completion. Never raises."""
        return self.clients[client].send(self.request(messages, salt))

    def request(self, messages: tuple[object, ...], salt: str = "") -> Request:
        """Return the chat completion as it is asked for."""
        extra: dict[str, object] = {"ignore_eos": True, "min_tokens": self.max_tokens, "temperature": 0}
        if salt:
            extra["cache_salt"] = salt
        return Request(messages, self.max_tokens, extra)  # type: ignore[arg-type]

    def learn(self, seed: str) -> Calibration:
        """Send two lengths of text and return what a word costs. Raises ValueError with the reason why it cannot."""
        calibration = Calibration()
        for words in LEARNING_WORDS:
            result = self.send(plan.messages(plan.text(f"{seed}/{words}", words), "One word, please."))
            if result.failure:
                raise ValueError(f"{result.failure.message}; {result.failure.remedy}")
            if not result.prompt_tokens:
                raise ValueError("the server does not say how long a prompt was (usage.prompt_tokens)")
            calibration = calibration.learn(words, result.prompt_tokens)
        return calibration

    def close(self) -> None:
        """End the requests under way and let go of the connections."""
        self.closed = True
        for client in self.clients:
            client.close()
        if self._engine:
            self._engine.close()


def apart(ask: Ask, off: Off, seed: str) -> tuple[tuple[object, ...], str]:
    """Return the messages and the salt by which a request of the second arm finds nothing cached."""
    if ask.arm != "off" or off is Off.SERVER:
        return ask.messages, ""
    mark = f"{seed}/{ask.mode}/{ask.kind}/{ask.at}/{ask.repetition}/{ask.messages[-1]['content']}"
    unique = hashlib.sha256(mark.encode()).hexdigest()[:12]
    if off is Off.SALT:
        return ask.messages, unique
    first, *rest = ask.messages
    return ({**first, "content": f"{unique} {first['content']}"}, *rest), ""


def sample(ask: Ask, result: Result) -> Sample:
    """Return what is kept of a request."""
    return Sample(
        mode=ask.mode,
        arm=ask.arm,
        kind=ask.kind,
        at=ask.at,
        repetition=ask.repetition,
        ttft=result.ttft,
        total=result.total,
        started_at=result.started_at,
        prompt=result.prompt_tokens,
        completion=result.completion_tokens,
        cached=result.cached_tokens,
        buffered=Mark.BUFFERED in result.marks,
        error=f"{result.failure.error_class}: {result.failure.message}" if result.failure else "",
    )
