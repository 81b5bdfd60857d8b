"""All that a run found, as one value; it is what the table, the JSON file and the page show. Pure."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from exporter.engine import Dialect
from exporter.scrape import Scrape
from probes.bench import capacity, counters, findings, summary
from probes.bench.capacity import Round
from probes.bench.compare import Change
from probes.bench.counters import Window
from probes.bench.findings import Context, Note
from probes.bench.run import Measured
from probes.bench.servers import Sample
from probes.bench.stats import Estimate
from probes.bench.steps import Off
from probes.bench.summary import Floor, Row


@dataclass(frozen=True, slots=True)
class About:
    """What a server says of itself; None and "" where it does not. Lengths in tokens."""

    url: str
    model: str = ""
    version: str = ""
    prefix_caching: bool | None = None
    block_size: int | None = None
    reuse_unit: int | None = None
    blocks: int | None = None
    engine: str = ""  # vLLM or SGLang

    @property
    def room(self) -> int | None:
        """The tokens that its KV cache holds."""
        return self.blocks * self.block_size if self.blocks and self.block_size else None


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `rows` in the order of measurement; all times in seconds."""

    started_at: str
    seconds: float
    command: str
    profile: str
    off: str
    max_tokens: int
    requests: int
    planned: int
    learning_tokens: int  # prompt tokens sent before the first stage, which no window holds
    stopped: str  # why it ended early, "" if it is complete
    servers: Mapping[str, About]
    notes: Sequence[Note]
    changes: Sequence[Change]
    floor: Floor | None
    decode_per_token: Mapping[str, Estimate | None]
    rows: Sequence[Row]
    rounds: Sequence[Round]
    windows: Sequence[Window]
    samples: Sequence[Sample]

    @property
    def found_fault(self) -> bool:
        """Whether the figures are not to be taken as they stand."""
        return any(note.warning for note in self.notes)


def about(url: str, model: str, scrape: Scrape | None) -> About:
    """Return what the engine behind a server says of itself."""
    found = scrape.snapshot if scrape else None
    if found is None or not found.caches:
        return About(url, model)
    cache = found.caches[0]
    facts = cache.facts
    unit = facts.reuse_unit or facts.block_size
    return About(
        url,
        model or cache.model_name,
        found.version,
        facts.prefix_caching_enabled,
        facts.stated_block_size,
        unit,
        facts.blocks,
        "SGLang" if found.dialect is Dialect.SGLANG else "vLLM",
    )


def conclude(  # noqa: PLR0913
    measured: Measured,
    servers: Mapping[str, About],
    *,
    command: str,
    profile: str,
    off: Off,
    max_tokens: int,
    learning_tokens: int,
    began: float,
    seconds: float,
) -> Report:
    """Return the report of what was measured; `began` in Unix seconds."""
    found = summary.figures(measured.samples, counters.windows(measured.readings))
    samples = found.samples
    rounds = capacity.rounds(samples, found.rows, found.windows)
    context = Context(off, max_tokens, servers["on"].reuse_unit, servers["on"].room, measured.stopped)
    return Report(
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        seconds=round(seconds, 1),
        command=command,
        profile=profile,
        off=off,
        max_tokens=max_tokens,
        requests=len(samples),
        planned=measured.planned,
        learning_tokens=learning_tokens,
        stopped=measured.stopped,
        servers=servers,
        notes=findings.notes(context, found, rounds),
        changes=found.changes,
        floor=found.floor,
        decode_per_token={
            arm: summary.decode_per_token(one for one in samples if one.arm == arm and one.mode in ("article", "floor"))
            for arm in ("on", "off")
        },
        rows=found.rows,
        rounds=rounds,
        windows=found.windows,
        samples=samples,
    )


def data(report: Report) -> dict[str, Any]:
    """Return the report as plain data, seconds rounded to microseconds."""
    rounded = _rounded(asdict(report))
    assert isinstance(rounded, dict)
    return rounded


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(own) for own in value]
    return value
