"""Files that a person saved - results of canaries, prompts, metrics - as the doctor takes them."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from exporter.read import read
from exporter.scrape import ScrapeError
from exporter.snapshot import Snapshot
from exporter.window import NO_CANARY, Tokens
from probes import divergence
from probes.client import Mark
from probes.divergence import Divergence, TokenDivergence
from probes.evidence import Reply
from probes.plan import Arm

EXAMPLE: Final = '{"arm": "repeat", "prompt_tokens": 2003, "cached_tokens": 1984, "ttft_seconds": 0.031}'
NOT_MEASURED: Final = ("calibration", Arm.CURVE)  # rows of `once --json` that are not for judging


class InputError(ValueError):
    """A file that the call names cannot be used; the message names the option."""


def content(option: str, path: str) -> bytes:
    """Return what the file of an option holds."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{option}: {path} cannot be read: {error.strerror}") from None


def snapshots(before: str | None, after: str | None) -> tuple[Snapshot | None, Snapshot | None, ScrapeError | None]:
    """Read two /metrics bodies, and why one cannot be used; a single one is the present."""
    found: dict[str, Snapshot] = {}
    errors: list[ScrapeError] = []
    for option, path in (("--before", before), ("--after", after)):
        if path:
            try:
                found[option] = read(content(option, path))
            except ScrapeError as error:
                errors.append(ScrapeError(error.reason, f"{option} {path}: {error.detail}"))
    both = ScrapeError(errors[-1].reason, "; ".join(each.detail for each in errors)) if errors else None
    if not after:
        return None, found.get("--before"), both
    return found.get("--before"), found.get("--after"), both


def compared(paths: Iterable[str]) -> Divergence | TokenDivergence:
    """Compare two prompts: texts, lists of messages, token ids, or answers that tell their number of tokens."""
    left, right = (_prompt(path) for path in paths)
    if isinstance(left, Ids) and isinstance(right, Ids):
        return divergence.compare_tokens(left.ids, right.ids)
    if isinstance(left, int) and isinstance(right, int):
        return divergence.compare_lengths(left, right)
    if isinstance(left, Ids | int) or isinstance(right, Ids | int):
        raise InputError("--prompt: give two texts, two lists of messages, or two lists of token ids")
    return divergence.compare(left, right)


@dataclass(frozen=True, slots=True)
class Ids:
    """A prompt as its token ids."""

    ids: list[int]


def _prompt(path: str) -> divergence.Prompt | Ids | int:
    text = content("--prompt", path).decode("utf-8", errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if isinstance(found, dict):  # an answer of /tokenize or of a completion, or a request
        usage = found.get("usage")
        counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        found = next((found[name] for name in ("tokens", "messages", "prompt") if name in found), counted)
    if _is_whole(found):
        return int(found)
    if isinstance(found, list) and found:
        if all(map(_is_whole, found)):
            return Ids(found)
        if all(isinstance(message, dict) for message in found):
            return found
    return found if isinstance(found, str) else text


@dataclass(frozen=True, slots=True)
class Canaries:
    """Results of canaries: what is for judging, and the tokens that all of them took."""

    replies: tuple[Reply, ...] = ()
    requests: int = 0
    tokens: Tokens = NO_CANARY
    told: bool = True  # whether any row says how much was cached


def canaries(path: str) -> Canaries:
    """Read a row for each request: JSON lines, a JSON array, what `once --json` prints, or CSV."""
    seen: set[tuple[object, ...]] = set()
    replies: list[Reply] = []
    asked: list[Reply] = []
    told = False
    for where, row in _rows(path):
        try:
            reply = _reply(row)
        except ValueError as error:
            raise InputError(f"--canary: {path}, {where}: {error}. Example: {EXAMPLE}") from None
        told = told or reply.cached_tokens is not None
        if told and reply.cached_tokens is None:  # older engines leave a zero out
            reply = replace(reply, cached_tokens=0)
        asked.append(reply)
        if row.get("arm") in NOT_MEASURED or row.get("error"):
            continue
        key = (reply.model, row.get("rank"))
        first = reply.arm == Arm.RETAINED and key not in seen  # of a prefix or an adapter: it is cold
        seen.add(key)
        replies.append(replace(reply, judged=not first))
    sent = Tokens(sum(r.prompt_tokens or 0 for r in asked), sum(r.cached_tokens or 0 for r in asked))
    return Canaries(tuple(replies), len(asked), sent, told)


def _rows(path: str) -> Iterator[tuple[str, Any]]:
    """Yield each row, and where it stands."""
    text = content("--canary", path).decode("utf-8-sig", errors="replace")
    if text.lstrip()[:1] not in {"{", "["}:
        yield from _table(path, text)
        return
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        where = f"line {text.count(chr(10), 0, at) + 1}"
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise InputError(f"--canary: {path}, {where}: no JSON. Example: {EXAMPLE}") from None
        rows = found.get("results", [found]) if isinstance(found, dict) else found
        for row in rows if isinstance(rows, list) else [rows]:
            yield where, row


def _table(path: str, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a CSV with a line of names; lines that begin with # are remarks."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    table = csv.DictReader(lines)
    if "cached_tokens" not in (table.fieldnames or ()):
        raise InputError(f"--canary: {path} is neither JSON nor CSV with cached_tokens. Example: {EXAMPLE}")
    for number, row in enumerate(table, 1):
        yield f"row {number}", {name: _value(text) for name, text in row.items() if name and text}


def _value(text: str) -> str | int | float:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _reply(row: Any) -> Reply:  # noqa: ANN401  # whatever the file holds
    if not isinstance(row, Mapping) or not row.keys() & {"cached_tokens", "ttft_seconds"}:
        raise ValueError("no result of a canary")
    sighting = row.get("sighting")
    arm = row.get("arm") or (Arm.RETAINED if sighting == 1 else Arm.REPEAT)
    if arm not in {*Arm, *NOT_MEASURED}:
        raise ValueError(f"arm {arm!r} is none of {', '.join(Arm)}")
    salt = row.get("cache_salt")
    return Reply(
        prompt_tokens=_whole(row, "prompt_tokens"),
        cached_tokens=_whole(row, "cached_tokens"),
        arm=arm,
        ttft=None if Mark.BUFFERED in (row.get("marks") or ()) else _seconds(row),
        same=sighting is None and not row.get("arm"),
        model=f"{row.get('model') or ''}" + (f" with salt {salt}" if salt else ""),
        at=_time(row.get("at")),
    )


def _whole(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is not None and not _is_whole(value):
        raise ValueError(f"{name} {value!r} is no count")
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seconds(row: Mapping[str, Any]) -> float | None:
    value = row.get("ttft_seconds")
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or value < 0):
        raise ValueError(f"ttft_seconds {value!r} are no seconds")
    return value


def _time(value: object) -> datetime | None:
    """Return a time as ISO 8601 or as Unix seconds; without a zone it is local."""
    if value is None:
        return None
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value).astimezone()
        at = datetime.fromisoformat(str(value))
        return at if at.tzinfo else at.astimezone()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"at {value!r} is no time") from None
