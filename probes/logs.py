"""A vLLM server's log, line by line -> what it says of prefix caching, and the hit rates it printed. Pure.

Facts are those of the last server start in the log; rates are those of all starts. Formats are those of vLLM 0.4
to 0.32, coloured or plain, or as JSON. What is cut off or unknown is left out, never guessed.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from statistics import fmean
from typing import Final

MAX_LINE: Final = 65_536  # characters looked at; only logged prompts are longer
MAX_HEAD: Final = 2_000  # characters before which a record starts, such as those of a container's log
MAX_WARNING: Final = 200  # characters
TOLERANCE: Final = 0.05  # ratios closer than that agree
SPARK_WIDTH: Final = 40  # characters
BARS: Final = "▁▂▃▄▅▆▇█"  # 0 to 100 %


class Span(StrEnum):
    """What a logged rate is taken over."""

    LIFETIME = "lifetime"  # V0: an average of blocks since the start
    LAST_REQUESTS = "last_requests"  # V1: the last 1000 requests; a reset of the cache begins it anew


@dataclass(frozen=True, slots=True)
class LoggedRate:
    """One periodic line. Ratios are 0..1, None = not printed; `at` is MM-DD HH:MM:SS as logged, without a year."""

    at: str
    engine: str  # as the metrics label it, "all" = aggregated, "" = not named
    span: Span
    device: float | None = None
    external: float | None = None
    multimodal: float | None = None  # items of the frontend's cache, no KV
    cpu: float | None = None  # V0's second tier
    start: int = 0  # how many server starts precede this one in the log


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a log says; None or "" = it does not. `flags` holds settings that bear on reuse, no paths and no keys."""

    prefix_caching_enabled: bool | None = None
    block_size: int | None = None  # tokens
    block_manager_v2: bool | None = None
    version: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    rates: tuple[LoggedRate, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """The device rates of one engine from one server start on; ratios 0..1."""

    engine: str
    start: int
    since: str
    until: str
    count: int
    first: float
    lowest: float
    last: float
    spark: str


COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
RECORD: Final = re.compile(
    r"\b(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<at>\d\d-\d\d \d\d:\d\d:\d\d) \[?[\w./-]+:\d+\] ?"
)
TIME: Final = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d")
BANNER: Final = re.compile(r"(?:vLLM API server|[ █▀▄]*█ +)\s?version (?P<version>\d[\w.+-]*)")
ENGINE: Final = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[\w.+-]+)\) with config: ")
ARGUMENTS: Final = re.compile(r"non-default args: \{|args: Namespace\(")
PERIODIC: Final = re.compile(
    r"(?:Engine (?P<rank>\d{1,9}): |(?P<all>\d+ Engines Aggregated): )?Avg prompt throughput: "
)
FIGURE: Final = re.compile(r"\b(?P<cache>External prefix|Prefix|MM) cache hit rate: (?P<percent>[^%\s,]+)%")
TWO_TIERS: Final = re.compile(r"Prefix cache hit rate: GPU: (?P<device>[^%\s,]+)%, CPU: (?P<cpu>[^%\s,]+)%")
FIELDS: Final = {"Prefix": "device", "External prefix": "external", "MM": "multimodal"}
BLOCK_SIZE: Final = re.compile(r"(?:\[XPU\])?Setting (?P<of>attention|kv cache) block size to (?P<tokens>\d{1,9}) ")
ON: Final = re.compile(r"(?i)(?:warning: |automatic )?prefix caching (?:in .* mode )?is (?:currently )?enabled")
OFF: Final = re.compile(
    r"(?i)disabling\)? prefix[ -]caching|prefix[ -]caching[^.]*(?:disabling(?: it\b| both\b|\.|$)|disable it\b)"
    r"|prefix[ -]caching(?:[^.;,]*\b(?:has been|to be|is))? disabled|prefix caching is not enabled"
)
CONCERN: Final = re.compile(r"(?i)support|experimental|mamba cache mode|reset prefix cache")
TOPIC: Final = re.compile(r"(?i)prefix[ -]cach")
OF_A_REQUEST: Final = ("Received request", "Added request", "Generated response", "Request ")  # these hold prompts
SWITCH: Final = {"True": True, "False": False}
KEPT: Final = re.compile(  # an allow-list: paths and keys are settings, too
    r"enable_(?:prefix_caching|chunked_prefill|lora|prompt_tokens_details)|block_size|use_v2_block_manager"
    r"|prefix_(?:caching_hash_algo|match_unit)|mamba_(?:cache_mode|block_size)|max_(?:model_len|num_seqs)"
    r"|max_num_batched_tokens|gpu_memory_utilization|num_gpu_blocks_override|kv_cache_(?:dtype|metrics)"
    r"|disable_(?:sliding_window|log_stats)|data_parallel_size|api_server_count|language_model_only"
    r"|(?:speculative|kv_transfer|kv_events)_config"
)
DELIMITER: Final = re.compile(r"'(?:[^'\\]|\\.)*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)|[][(){},]")
PAIR: Final = re.compile(r"\s*'?(\w+)'?(?:=|: )(.*)", re.DOTALL)
PLAIN: Final = re.compile(r"[\w.+-]{1,40}")
METHOD: Final = re.compile(r"\b(?:method|kv_connector)[\"']?(?:=|: ?)[\"'](\w{1,40})[\"']")


def read(log: str | Iterable[str]) -> LogFacts:
    """Read a log, as one text or as a stream of lines; it is gone through once and not kept."""
    found = _Found()
    for line in log.split("\n") if isinstance(log, str) else log:
        level, at, message = _record(line)
        if banner := BANNER.match(message):
            earlier = found.start + bool(found.version or found.rates)
            found = _Found(banner["version"], rates=found.rates, start=earlier)
        elif message:
            found.take(level, at, message)
    flags, size = found.flags, found.flags.get("block_size", "")
    return LogFacts(
        SWITCH.get(flags.get("enable_prefix_caching", "")),
        int(size) if size.isdecimal() else None,
        SWITCH.get(flags.get("use_v2_block_manager", "")),
        found.version,
        flags,
        tuple(found.warnings),
        tuple(found.rates),
    )


def timeline(rates: Iterable[LoggedRate]) -> list[Row]:
    """Return a row for each engine and server start, in the order of their first lines."""
    groups: dict[tuple[int, str], list[tuple[str, float]]] = {}
    for rate in rates:
        if rate.device is not None:
            groups.setdefault((rate.start, rate.engine), []).append((rate.at, rate.device))
    rows = []
    for (start, engine), points in groups.items():
        times, values = zip(*points, strict=True)
        line = sparkline(values)
        rows.append(Row(engine, start, times[0], times[-1], len(values), values[0], min(values), values[-1], line))
    return rows


def sparkline(ratios: Sequence[float]) -> str:
    """Draw ratios from 0 to 1 in at most 40 characters, each the mean of its equal part of them."""
    width = min(len(ratios), SPARK_WIDTH)
    cuts = [index * len(ratios) // width for index in range(width + 1)] if width else []
    means = [fmean(ratios[begin:end]) for begin, end in pairwise(cuts)]
    return "".join(BARS[min(int(mean * len(BARS)), len(BARS) - 1)] for mean in means)


def difference(rates: Iterable[LoggedRate], window_ratio: float | None) -> str:
    """Say in one sentence how the log's last figures differ from the ratio, 0..1, of a window of the metrics.

    The log counts the canary's requests, which a window leaves out.
    """
    known = [rate for rate in rates if rate.device is not None]
    last = {rate.engine: rate for rate in known if rate.start == known[-1].start}
    if not last:
        return "The log has no prefix cache hit rate: no traffic yet, caching off, or --disable-log-stats."
    ratios = {engine: rate.device or 0.0 for engine, rate in last.items()}
    least, most = min(ratios.values()), max(ratios.values())
    lifetime = known[-1].span is Span.LIFETIME
    logged = ", ".join(f"{ratio:.1%}" + f" (engine {name})" * (len(last) > 1) for name, ratio in ratios.items())
    said = f"The log's {logged} covers {'all blocks since the start' if lifetime else 'the last 1000 requests'}"
    if window_ratio is None:
        return f"{said}; the window has no ratio to compare it with."
    if least - TOLERANCE <= window_ratio <= most + TOLERANCE:
        return f"{said} and agrees with the window's {window_ratio:.1%}."
    moved = "fell" if window_ratio < least else "rose"
    slow = "a lifetime average hardly shows it" if lifetime else "the log follows as older requests drop out"
    return f"{said}, not just the window with its {window_ratio:.1%}: reuse {moved} lately, and {slow}."


@dataclass(slots=True)
class _Found:
    """What the lines since the last server start have told; a later one outdoes an earlier one, as in the engine."""

    version: str = ""
    flags: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)  # an ordered set
    rates: list[LoggedRate] = field(default_factory=list)
    start: int = 0

    def take(self, level: str, at: str, message: str) -> None:
        if "hit rate: " in message and (rate := _rate(at, message, self.start)):
            self.rates.append(rate)
        elif engine := ENGINE.match(message):
            self.version = engine["version"]
            self.flags |= _settings(message[engine.end() :])
        elif arguments := ARGUMENTS.match(message):
            self.flags |= _settings(message[arguments.end() :])
        elif size := BLOCK_SIZE.match(message):
            self.flags["block_size"] = size["tokens"]
            if size["of"] == "attention":  # forced by a hybrid model, not a backend's usual size
                self.warnings[message[:MAX_WARNING]] = None
        elif level != "ERROR" and TOPIC.search(message, 0, MAX_WARNING) and not message.startswith(OF_A_REQUEST):
            self.hear(level, message[:MAX_WARNING])

    def hear(self, level: str, message: str) -> None:
        off = OFF.search(message)
        if off or ON.match(message):
            self.flags["enable_prefix_caching"] = str(not off)
        if off or level == "WARNING" or CONCERN.search(message):
            self.warnings[message] = None


def _record(line: str) -> tuple[str, str, str]:
    """Return level, time and message of a log record; three times "" where the line is none."""
    line = line[:MAX_LINE].rstrip("\r\n")
    if line.startswith("{"):
        return _json_record(line)
    if "\x1b" in line:
        line = COLOUR.sub("", line)
    match = RECORD.search(line, 0, MAX_HEAD)
    return (match["level"], match["at"], line[match.end() :]) if match else ("", "", "")


def _json_record(line: str) -> tuple[str, str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "", "", ""
    if isinstance(inner := record.get("log"), str):  # Docker's json-file driver: a line within a line
        return _record(inner)
    time = TIME.search(str(record.get("asctime", "")))
    return str(record.get("levelname", "")), time[0] if time else "", str(record.get("message", ""))


def _rate(at: str, message: str, start: int) -> LoggedRate | None:
    if tiers := TWO_TIERS.match(message):
        device, cpu = _ratio(tiers["device"]), _ratio(tiers["cpu"])
        return None if device is cpu is None else LoggedRate(at, "", Span.LIFETIME, device, cpu=cpu, start=start)
    if not (line := PERIODIC.match(message)):
        return None
    figures = {FIELDS[found["cache"]]: _ratio(found["percent"]) for found in FIGURE.finditer(message)}
    if all(figure is None for figure in figures.values()):
        return None
    engine = "all" if line["all"] else str(int(line["rank"])) if line["rank"] else ""
    return LoggedRate(at, engine, Span.LAST_REQUESTS, **figures, start=start)


def _ratio(percent: str) -> float | None:
    """Return 0..1; None for what is none, such as the -100 % of a tier without caching."""
    try:
        ratio = round(float(percent) / 100, 6)
    except ValueError:
        return None
    return ratio if 0 <= ratio <= 1 else None


def _settings(text: str) -> dict[str, str]:
    """Return the settings worth keeping; one that is nested in another's value, or cut off, is not one of them."""
    settings, depth, begin = {}, 0, 0
    for found in DELIMITER.finditer(text):
        mark = found[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}" and depth:
            depth -= 1
        elif mark in ",)]}" and not depth:
            pair = PAIR.fullmatch(text[begin : found.start()])
            if pair and KEPT.fullmatch(pair[1]) and pair[2] != "None":
                settings[pair[1]] = _shown(pair[2])
            if mark != ",":
                break
            begin = found.end()
    return settings


def _shown(value: str) -> str:
    bare = value.strip("'\"")
    method = METHOD.search(value)
    return bare if PLAIN.fullmatch(bare) else method[1] if method else "set"
