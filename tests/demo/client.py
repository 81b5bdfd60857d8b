"""What the tests of the simulated engine ask it, and how they read its counters."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from demo.engine import Engine
from demo.rank import Settings
from exporter.parse import parse

FAST = Settings(block_size=32, blocks=512, base_ms=0, decode_ms=0, prefill_us_per_token=0)
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
DEADLINE_SECONDS = 5.0


def tokens(length: int, start: int = 0) -> list[int]:
    """Return a prompt as token ids; another start is another first block."""
    return [(start + position) % 256 for position in range(length)]


def post(engine: Engine, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], str]:
    """Send JSON on a connection of its own; return status, headers and text. Raise OSError, HTTPException."""
    return fetch(engine, path, json.dumps(body), **headers)


def fetch(engine: Engine, path: str, body: str | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=DEADLINE_SECONDS)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST" if body is not None else "GET", path, body, names)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        connection.close()


def complete(engine: Engine, prompt: Any, rank: int | None = None, **fields: Any) -> dict[str, Any]:
    """Ask /v1/completions for four tokens; return the answer."""
    body = {"prompt": prompt, "max_tokens": 4, "ignore_eos": True} | fields
    headers = {} if rank is None else {"X_data_parallel_rank": str(rank)}
    status, _, text = post(engine, COMPLETIONS, body, **headers)
    assert status == 200, text
    answer: dict[str, Any] = json.loads(text)
    return answer


def cached(answer: dict[str, Any]) -> int:
    found: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def values(engine: Engine) -> Counter[str]:
    """Return the sums over the ranks, by field of the exporter's table and, where it is split, by label."""
    found: Counter[str] = Counter()
    for sample in parse(engine.metrics()):
        if sample.route.part != "bucket":
            split = dict(sample.labels.rest).get(sample.route.field.split)
            part = "" if sample.route.part == "value" else f" {sample.route.part}"
            found[split or f"{sample.route.field.name}{part}"] += sample.value  # type: ignore[assignment]
    return found


def looked_up(engine: Engine, ask: Callable[[], object]) -> tuple[float, float]:
    """Return by how much the queries and the hits grow."""
    before = values(engine)
    ask()
    after = values(engine)
    return after["queried"] - before["queried"], after["hit"] - before["hit"]


def events(text: str) -> Sequence[dict[str, Any]]:
    """Return the objects of a stream, which has to be whole."""
    *chunks, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]


def eventually(condition: Callable[[], bool]) -> bool:
    """Ask until it is so, or until the time is over."""
    deadline, never = time.monotonic() + DEADLINE_SECONDS, threading.Event()
    while not condition():
        if never.wait(0.005) or time.monotonic() > deadline:
            return False
    return True
