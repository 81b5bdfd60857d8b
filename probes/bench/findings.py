"""Figures -> what a reader must know before believing them: one sentence each. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from probes.bench import capacity
from probes.bench.capacity import Cliff, Round
from probes.bench.compare import Change
from probes.bench.counters import Window
from probes.bench.servers import Sample
from probes.bench.steps import Off
from probes.bench.summary import Figures, Floor, Row

SWAMPED: Final = 5.0  # times the TTFT saved: decoding that long hides it in a total
MANY: Final = 0.25  # of the answers: some may have been held up by a busy client
SHARE_SEEN: Final = 0.5  # of the expected cached tokens


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence; a warning says that a figure does not mean what it seems to."""

    text: str
    warning: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """What the run was: `unit` and `room` in tokens, None where the engine does not say; tokens that were asked for."""

    off: Off
    max_tokens: int
    unit: int | None
    room: int | None  # of the whole KV cache
    complete: str  # why it ended early, "" if it did not


def notes(context: Context, figures: Figures, rounds: Sequence[Round]) -> list[Note]:
    """Return all that is to be said, warnings first."""
    found = [
        *_traffic(figures.windows),
        *_unit(context, figures.rows),
        *_reuse(figures.rows, figures.windows, context),
        *_totals(context, figures.changes),
        *_failures(figures.samples),
        *([Note(f"The run is not complete: {context.complete}.")] if context.complete else []),
        *_account(figures.windows),
        *_floor(figures.floor),
        *_room(context, rounds),
        *_off(context),
    ]
    return sorted(found, key=lambda note: not note.warning)


def _traffic(windows: Iterable[Window]) -> list[Note]:
    seen = [one for one in windows if one.other_traffic]
    if not seen:
        return []
    where = ", ".join(sorted({one.stage for one in seen}))
    return [Note(f"Other traffic ran ({where}): {seen[0].other_traffic}. Repeat it on an idle server.")]


def _unit(context: Context, rows: Iterable[Row]) -> list[Note]:
    if not context.unit:
        return []
    short = sorted({row.prompt for row in rows if row.prompt and row.prompt <= context.unit})
    lengths = ", ".join(f"{length:.0f}" for length in short)
    return [
        Note(f"A prompt of {lengths} tokens cannot be reused: it is no longer than the reuse unit, {context.unit}.")
        for _ in short[:1]
    ]


def _reuse(rows: Sequence[Row], windows: Sequence[Window], context: Context) -> list[Note]:
    warm = [row for row in rows if row.arm == "on" and row.kind == "warm" and row.mode in {"article", "floor"}]
    made = []
    blind = [row for row in warm if row.cached is not None and row.prompt and row.cached < row.prompt * SHARE_SEEN]
    if blind:
        found, asked = blind[0].cached, blind[0].prompt
        made.append(
            Note(
                f"The warm requests found {found:.0f} of {asked:.0f} tokens cached: the arm `on` hardly reuses. "
                "Ask `python -m probes doctor`."
            )
        )
    if warm and all(row.cached is None for row in warm) and not any(one.hits is not None for one in windows):
        made.append(Note("Neither the answers nor an engine's counters tell of cached tokens: only times are known."))
    off = [row for row in rows if row.arm == "off" and row.cached]
    if off:
        how = "the baseline server" if context.off is Off.SERVER else "the arm `off`"
        made.append(Note(f"{how.capitalize()} found {off[0].cached:.0f} tokens cached, so that it is no baseline."))
    return made


def _totals(context: Context, changes: Iterable[Change]) -> list[Note]:
    by_name = {(one.what, one.against): one for one in changes if one.mode == "article"}
    ttft, total = by_name.get(("five-round mean TTFT", "off")), by_name.get(("five-round mean total", "off"))
    if not ttft or not total:
        return []
    saved, decoding = ttft.theirs - ttft.ours, total.theirs - ttft.theirs
    if saved <= 0 or decoding < saved * SWAMPED:
        return []
    return [
        Note(
            f"max_tokens {context.max_tokens} hides the effect in the totals: decoding takes {decoding * 1000:.0f} ms "
            f"a request, {decoding / saved:.0f} times the {saved * 1000:.1f} ms of TTFT saved. Judge by TTFT."
        )
    ]


def _failures(samples: Iterable[Sample]) -> list[Note]:
    samples = list(samples)
    failed = [one for one in samples if one.error]
    made = []
    if failed:
        made.append(Note(f"{len(failed)} of {len(samples)} requests failed, the first with {failed[0].error}"))
    buffered = sum(one.buffered for one in samples)
    if buffered:
        made.append(
            Note(
                f"{buffered} of {len(samples)} answers came in one piece: their TTFT is the time of the whole answer.",
                warning=buffered > len(samples) * MANY,
            )
        )
    return made


def _account(windows: Sequence[Window]) -> list[Note]:
    """Return the whole run by each engine's counters."""
    made = []
    for arms in dict.fromkeys(one.arms for one in windows):
        read = [one for one in windows if one.arms == arms and one.prompt]
        if not read:
            continue
        prompt, hits = sum(one.prompt or 0 for one in read), sum(one.hits or 0 for one in read)
        parts = [f"{hits:.0f} of {prompt:.0f} prompt tokens found cached ({hits / prompt:.1%})"]
        blocks = [one.reallocated_blocks for one in read if one.reallocated_blocks is not None]
        if blocks:
            parts.append(f"{sum(blocks)} blocks taken for another use")
        preempted = [one.preemptions for one in read if one.preemptions is not None]
        if preempted:
            parts.append(f"{sum(preempted):.0f} preemptions")
        usage = [share for one in read for share in (one.peak_kv_usage, one.kv_usage) if share is not None]
        if usage:
            parts.append(f"KV usage seen up to {max(usage):.1%}")
        made.append(Note(f"The engine's counters, arm {arms}: {', '.join(parts)}.", warning=False))
    return made


def _floor(floor: Floor | None) -> list[Note]:
    if not floor:
        return []
    text = f"Under a warm request of {_ms(floor.warm.value)} (n={floor.warm.n}; cold {_ms(floor.cold.value)}), in means"
    parts = []
    if floor.queue:
        parts.append(f"{_ms(floor.queue.value)} in the queue")
    if floor.warm_prefill:
        parts.append(f"{_ms(floor.warm_prefill.value)} from scheduled to first token")
    if floor.outside is not None:
        parts.append(f"{_ms(floor.outside)} outside of both (network, HTTP, chat template, tokenizer)")
    if not parts:
        return [
            Note(f"{text} there is {_ms(floor.warm.value)} that reuse cannot save: no engine's account of it.", False)
        ]
    made = [Note(f"{text}: {', '.join(parts)}.", False)]
    if floor.warm_prefill and floor.cold_prefill and floor.warm_computed is not None:
        step = f"; a decode step, of one token, takes {_ms(floor.decode_step.value)}" if floor.decode_step else ""
        made.append(
            Note(
                f"Reuse took the prefill from {_ms(floor.cold_prefill.value)} to {_ms(floor.warm_prefill.value)} for "
                f"the {floor.warm_computed:.0f} tokens left to compute{step}. What any step costs "
                "(launching its kernels from the host, most of all with --enforce-eager) no reuse saves.",
                warning=False,
            )
        )
    return made


def _room(context: Context, rounds: Sequence[Round]) -> list[Note]:
    """Return how many prefixes the cache holds, beside the engine's own word on its size."""
    found = capacity.cliff(rounds, context.unit)
    if not found:
        return []
    share = {one.prefixes: f"{one.cached or 0:.1%}" for one in rounds}
    if found.fell is None:
        text = f"Asked again in turn, up to {_prefixes(found.held, found)} found ({share[found.held]} cached)"
    elif not found.held:
        text = f"Asked again in turn, not even {_prefixes(found.fell, found)} found ({share[found.fell]} cached)"
    else:
        text = (
            f"Asked again in turn, {_prefixes(found.held, found)} found ({share[found.held]} cached), "
            f"and {found.fell} are not ({share[found.fell]})"
        )
    if context.room is None:
        return [Note(f"{text}. The engine does not state the size of its cache.", False)]
    text = f"{text}. The engine states {context.room} tokens, room for {found.room(context.room):.1f} of them"
    if found.agrees(context.room):
        return [Note(f"{text}.", False)]
    return [Note(f"{text}, which does not agree. Ask `python -m probes doctor`.")]


def _prefixes(number: int, of: Cliff) -> str:
    words = ("prefix", "is") if number == 1 else ("prefixes", "are")
    return f"{number} {words[0]} of {of.tokens:.0f} tokens {words[1]}"


def _off(context: Context) -> list[Note]:
    how = {
        Off.SERVER: "The arm `off` is a second server; what else differs between the two is in the figures too.",
        Off.SALT: "The arm `off` is the same server with a `cache_salt` of its own for each request.",
        Off.HEAD: "The arm `off` is the same server with a unique first word in each request.",
    }
    return [Note(how[context.off], False)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
