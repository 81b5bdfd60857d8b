"""One target's canary: sends a cycle of requests and keeps what the next cycle needs of it."""

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from exporter.collector import Collector
from exporter.engine import Dialect
from exporter.scrape import Scrape
from probes import plan
from probes.budget import Budget
from probes.client import Client, Failed, Request, Result
from probes.config import CanaryTarget
from probes.curve import Curve, Sweep, point, size_of
from probes.outcome import ErrorClass, Failure
from probes.plan import Arm, Calibration, Planned, Shape

CALIBRATION_WORDS: Final = 100
CYCLE_SHARE: Final = 0.9  # of the interval, by when a cycle ends
MARGIN: Final = 1.1  # a prompt may cost that much more tokens than reckoned
SALTED_SINCE: Final = (0, 9)  # vLLM takes `cache_salt`
SEARCHED_UNITS: Final = (256, 1024)  # tokens: assumed in turn where nothing is found, for units are misstated
EXTRA: Final[dict[str, object]] = {"ignore_eos": True, "min_tokens": plan.MAX_TOKENS}
# After these the rest of a cycle would tell nothing new, or hurt.
HOPELESS: Final = {
    ErrorClass.CONNECTION_REFUSED,
    ErrorClass.DNS,
    ErrorClass.TLS,
    ErrorClass.AUTH,
    ErrorClass.OAUTH,
    ErrorClass.HTML_LOGIN,
    ErrorClass.BASE_URL,
    ErrorClass.UNKNOWN_MODEL,
    ErrorClass.RATE_LIMITED,
    ErrorClass.TIMEOUT_CONNECT,
    ErrorClass.TIMEOUT_FIRST_TOKEN,
    ErrorClass.TIMEOUT_TOTAL,
    ErrorClass.PROXY,
}
# After these of the list of models, a request to a model that is known would fail too.
UNREACHABLE: Final = {
    ErrorClass.CONNECTION_REFUSED,
    ErrorClass.DNS,
    ErrorClass.TLS,
    ErrorClass.TIMEOUT_CONNECT,
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A request of the plan and what became of it."""

    planned: Planned
    result: Result


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle saw: its requests in order, and the engine before and after them."""

    target: str
    number: int
    started_at: float  # Unix seconds
    result: str  # ok, failed or over_budget
    sent: tuple[Sent, ...] = ()
    failure: Failure | None = None  # the first one
    note: str = ""  # why it was over the budget
    listing: Failure | None = None  # of the list of models, which the cycle went on without
    before: Scrape | None = None
    after: Scrape | None = None
    unit: int = plan.DEFAULT_UNIT  # tokens, as far as the engine says
    prefix_is_new: bool = False  # so that `retained` cannot have survived
    details_seen: bool = False  # this server has told of cached tokens before
    sweep: Sweep | None = None  # the sweep of the curve that ended with this cycle
    curve: Mapping[int, float] = field(default_factory=dict)  # TTFT in seconds by shared per cent, of the last one

    def of(self, arm: Arm) -> list[Result]:
        """Return the results of an arm that measured something."""
        return [s.result for s in self.sent if s.planned.arm is arm and s.planned.measures and not s.result.failure]

    def cached(self, result: Result) -> int | None:
        """Return the prompt tokens that were found cached; None where the server never tells.

        One that has told of them before and is silent now had none: older engines leave a zero out.
        """
        if result.cached_tokens is not None:
            return result.cached_tokens
        return 0 if self.details_seen and result.prompt_tokens is not None else None


class Canary:
    """Runs cycles against one target, one at a time, with the sweeps of a curve. `close` ends a request under way."""

    def __init__(
        self, target: CanaryTarget, clock: Callable[[], float] = time.monotonic, curve: Curve | None = None
    ) -> None:
        self.target = target
        self._curve = curve
        self._clock = clock
        self._budget = Budget(target.tokens_per_minute, clock)
        self._client: Client | None = None
        self.closed = False
        self._number = 0
        self._seed = f"{target.name}/{target.endpoint.base_url}/{time.time_ns()}"
        self._calibration = Calibration()
        self._words = 0
        self._pad = 0
        self._unit = 0
        self._assumed = 0  # a unit other than the engine says, while looking for the true one
        self._searched = False
        self._details_seen = False
        self._salting = True
        self._engine = Collector.of_one(target.engine) if target.engine else None

    def run(self) -> Cycle:
        """Send one cycle. Never raises for what a server does."""
        cycle = self._run()
        if self._curve is None:
            return cycle
        if cycle.result == "failed":
            self._curve.forget()
        return replace(cycle, curve=self._curve.points)

    def _run(self) -> Cycle:
        self._number += 1
        ends = self._clock() + self.target.interval * CYCLE_SHARE
        cycle = Cycle(self.target.name, self._number, time.time(), "ok", before=self._scrape())
        try:
            client = self._connect()
        except Failed as error:
            return replace(cycle, result="failed", failure=error.failure)
        try:
            client.models()  # connects outside the measurement; proves the key and the model id
        except Failed as error:
            # A gateway may keep the list to itself and serve the model all the same.
            if error.failure.error_class in (UNREACHABLE if self.target.endpoint.model else HOPELESS):
                return replace(cycle, result="failed", failure=error.failure)
            cycle = replace(cycle, listing=error.failure)
        shape = _shape(cycle.before)
        shape = replace(shape, salted=shape.salted and self._salting)
        cycle = replace(cycle, unit=shape.unit)
        sent = self._calibrate(client, ends)
        prefix_is_new = self._resize(shape)
        planned = plan.cycle(self._seed, self._number, self._words, shape, self._pad)
        if not any(s.result.failure for s in sent):
            if note := self._over_budget(planned):
                return replace(cycle, result="over_budget", note=note, sent=tuple(sent), after=self._scrape())
            sent += self._send(client, planned, ends)
        failure = next((s.result.failure for s in sent if s.result.failure), None)
        cut = not failure and sum(s.planned.measures for s in sent) < len(planned)
        cycle = replace(
            cycle,
            result="failed" if failure or cut else "ok",
            sent=tuple(sent),
            failure=failure,
            prefix_is_new=prefix_is_new,
            details_seen=self._details_seen,
        )
        if self._curve and cycle.result == "ok":
            cycle = self._sweep(self._curve, cycle, client, ends)
        cycle = replace(cycle, after=self._scrape())
        self._learn(cycle)
        return cycle

    def close(self) -> None:
        """End what is under way; safe from any thread."""
        self.closed = True
        if self._client:
            self._client.close()
        if self._engine:
            self._engine.close()

    def _connect(self) -> Client:
        if self._client is None:
            target = self.target
            self._client = Client(
                target.endpoint,
                first_token_timeout=target.first_token_timeout,
                total_timeout=target.timeout,
                names=target.names,
            )
        return self._client

    def _scrape(self) -> Scrape | None:
        return self._engine.scrape()[0] if self._engine and not self.closed else None

    def _sweep(self, curve: Curve, cycle: Cycle, client: Client, ends: float) -> Cycle:
        """Add the sweep's next requests to a cycle that went well, while there is time and a minute's tokens last."""
        snapshot = cycle.before.snapshot if cycle.before else None
        curve.meet(self._words, snapshot.start_time if snapshot else None)
        shares = curve.shares()
        if not shares:
            return cycle
        own = [sent.planned for sent in cycle.sent if sent.planned.measures]
        last = cycle.sent[-1].result
        size = size_of(own[-1], last.prompt_tokens or self._reckoned(own[-1]), cycle.unit, cycle.cached(last))
        uniques = (plan.nonce(f"curve/{self._seed}", self._number, index) for index in itertools.count())
        planned = [point(share, own[-1], size, unique) for share, unique in zip(shares, uniques, strict=False)]
        refused = curve.refused(self._cost(planned[0]))
        # The next cycle may begin within the minute, and is not to lack what this one uses.
        if not refused and not self._budget.allows(sum(map(self._cost, (*planned, *own)))):
            refused = curve.refuse(f"a minute's tokens leave no room for it: raise {self.target.budget_setting}")
        if refused:
            return replace(cycle, sweep=refused)
        sent = self._send(client, planned, ends)
        cycle = replace(cycle, sent=(*cycle.sent, *sent))
        for asked, result in zip(planned, (each.result for each in sent), strict=False):
            if ended := curve.take(asked, result, cycle.cached(result)):
                return replace(cycle, sweep=ended)
        return cycle

    def _calibrate(self, client: Client, ends: float) -> list[Sent]:
        """Learn what a word costs from a short prompt of its own, once."""
        if self._calibration.seen or self._words:
            return []
        messages = plan.messages(plan.text(f"calibration/{self._seed}", CALIBRATION_WORDS), plan.TAIL)
        short = Planned(Arm.CONTROL, messages, CALIBRATION_WORDS, measures=False)
        return self._send(client, (short,), ends) if self._budget.allows(short.most_tokens) else []

    def _resize(self, shape: Shape) -> bool:
        """Fix the prompt's length; returns whether the shared prefix is another one than before."""
        wanted = max(shape.unit, self._assumed)
        if self._words and wanted == self._unit:
            return False
        self._unit = wanted
        self._words = self._calibration.words_for(plan.target_tokens(wanted, self._most(shape)))
        return True

    def _most(self, shape: Shape) -> float:
        """Return the tokens of a prompt that a minute's tokens allow in each request of a cycle."""
        return (self.target.tokens_per_minute / plan.requests(shape) - plan.MAX_TOKENS) / MARGIN

    def _send(self, client: Client, planned: Sequence[Planned], ends: float) -> list[Sent]:
        """Send until a time of the clock, or a failure that makes the rest pointless."""
        sent: list[Sent] = []
        for each in planned:
            if self.closed or self._clock() >= ends:
                break
            request = Request(each.messages, plan.MAX_TOKENS, {**EXTRA, **each.extra}, each.headers)
            result = client.send(request)
            sent.append(Sent(each, result))
            self._budget.spend((result.prompt_tokens or self._cost(each)) + (result.completion_tokens or 0))
            self._details_seen |= result.cached_tokens is not None
            if result.prompt_tokens:
                self._calibration = self._calibration.learn(each.words, result.prompt_tokens)
            if result.failure and result.failure.error_class in HOPELESS:
                break
        return sent

    def _over_budget(self, planned: Sequence[Planned]) -> str:
        """Say why these requests are not sent; "" if they may be."""
        takes, limit = sum(map(self._cost, planned)), self.target.tokens_per_minute
        if self._budget.allows(takes):
            return ""
        return (
            f"a cycle takes {takes} tokens, more than are left of {limit} a minute: raise {self.target.budget_setting}"
        )

    def _cost(self, planned: Planned) -> int:
        """Return the most tokens that a request is reckoned to use."""
        if not self._calibration.seen:
            return planned.most_tokens + plan.MAX_TOKENS
        return round(self._reckoned(planned) * MARGIN) + plan.MAX_TOKENS

    def _reckoned(self, planned: Planned) -> int:
        """Return the prompt tokens that are likely."""
        return round(self._calibration.fixed + self._calibration.per_word * planned.words)

    def _learn(self, cycle: Cycle) -> None:
        """Change what the next cycle sends where this one showed that it tells too little."""
        if cycle.failure and cycle.failure.error_class is ErrorClass.CONTEXT_TOO_LONG:
            self._words //= 2
            return
        repeats, controls = cycle.of(Arm.REPEAT), cycle.of(Arm.CONTROL)
        if any((cycle.cached(result) or 0) >= cycle.unit for result in controls):
            self._salting = False  # the salt was not heeded
        if any((result.prompt_tokens or 1) % cycle.unit == 0 for result in repeats):
            self._pad += 1  # a whole number of units gives a whole unit away
        missed = repeats and all(cycle.cached(result) == 0 for result in repeats)
        if missed and not self._searched and not _stated_off(cycle.before):
            most = self._most(_shape(cycle.before))
            longer = (unit for unit in SEARCHED_UNITS if unit > self._unit and plan.target_tokens(unit, most) <= most)
            self._assumed = next(longer, 0)
            self._searched = not self._assumed


def _stated_off(scrape: Scrape | None) -> bool:
    """Whether the engine says that prefix caching is off, so that there is nothing to look for."""
    caches = scrape.snapshot.caches if scrape and scrape.snapshot else ()
    return any(cache.facts.prefix_caching_enabled is False for cache in caches)


def _shape(scrape: Scrape | None) -> Shape:
    """Return what the engine's metrics say of its shape; the defaults where there are none."""
    snapshot = scrape.snapshot if scrape else None
    if snapshot is None:
        return plan.SHAPE
    units = [cache.facts.reuse_unit or cache.facts.stated_block_size or 0 for cache in snapshot.caches]
    return Shape(
        unit=max(units, default=0) or plan.DEFAULT_UNIT,
        ranks=tuple(sorted({cache.engine for cache in snapshot.caches})),
        salted=takes_salt(scrape),
    )


def takes_salt(scrape: Scrape | None) -> bool:
    """Whether the engine is a vLLM that knows `cache_salt`."""
    snapshot = scrape.snapshot if scrape else None
    if snapshot is None or snapshot.dialect is not Dialect.VLLM_V1:
        return False
    stated = re.match(r"v?(\d+)\.(\d+)", snapshot.version)
    return stated is not None and tuple(map(int, stated.groups())) >= SALTED_SINCE
