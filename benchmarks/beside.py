"""The bench's TTFT beside two others': `python -m benchmarks.beside [--base-url URL] [--rounds 10] [--requests 21]`.

One server answers three clients in each round: the bench's own and a bare socket in turn, and `vllm bench serve`, whose
place changes from round to round. Each sends the same one-message prompts, by turns cold and warm, one at a time, no
prompt twice; the first of each kind in a round, sent by a client that is not yet warm, is not counted. Intervals are
of rounds drawn anew. What differs: `vllm bench serve` counts from before it builds the request, and to the chunk with
the role, which vLLM sends right before the first token's; and it runs apart from the two, so that a round's drift is
in its difference, and less so in the bench's.
"""

import argparse
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rich.table import Table

from benchmarks.ttft import COLD, MS, NO_NONCE, SHARE, WARM, Reference, an_engine, sent_by_client
from benchmarks.vllm_bench import AbsentError, bench_serve
from exporter.checks import ConfigError
from probes import plan
from probes.bench.cells import ms
from probes.bench.compare import by_repetition, ttft, values
from probes.bench.counters import Window, windows
from probes.bench.run import SETTLE, Reading
from probes.bench.servers import Sample, Server
from probes.bench.stats import Estimate, pooled_difference, pooled_median
from probes.client import Failed, Result
from probes.config import CanaryTarget, load
from probes.report import console

OURS, SOCKET, VLLM = "bench", "socket", "vllm bench serve"
IN_TURN: Final = f"{OURS}, {SOCKET}"
TOKENS: Final = 1000  # of a prompt, about; `vllm bench serve` leaves out texts of more than 1,024
TIMEOUT: Final = 60.0  # seconds, of one request
ALIKE: Final = ("0" * 12, "0" * 5 + "f" * 7, "f" * 12)  # nonces: the second has five letters of the first
Message = dict[str, str]
Place = tuple[str, str, int, int]  # client, kind, place in the round, round


@dataclass(frozen=True, slots=True)
class Line:
    """One client's requests of one kind: seconds, and the difference to the socket's."""

    client: str
    kind: str
    requests: int
    prompt_tokens: list[int]
    cached_tokens: list[int]  # of those that were told
    ttft: Estimate
    difference: Estimate | None
    within_bound: bool


@dataclass(frozen=True, slots=True)
class Account:
    """The engine's own counters over one part of all rounds, beside what the clients know of it."""

    part: str
    requests: tuple[int, int | None]  # sent, counted
    prompt_tokens: tuple[int, float | None]
    hit_tokens: tuple[int, float | None]
    mean_ttft: tuple[float, float | None]  # seconds

    @property
    def agrees(self) -> bool:
        """Whether the engine counted what was sent, to the token."""
        return all(sent == counted for sent, counted in (self.requests, self.prompt_tokens, self.hit_tokens))


def main() -> int:
    """Measure and print; 0 if the bench is within its bound and the counters agree, else 1; 2 wrong call, 3 no run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--base-url", help="a running server, http only; else one is started. VLLM_API_KEY is its key")
    parser.add_argument("--rounds", type=int, default=10, help="6 or more [10]")
    parser.add_argument("--requests", type=int, default=21, help="of each client and kind in a round, 2 or more [21]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.rounds < 6 or args.requests < 2 or (args.base_url and urlsplit(args.base_url).scheme != "http"):  # noqa: PLR2004
        parser.error("at least 6 rounds of 2 requests, and a URL that starts with http://")
    with nullcontext((args.base_url, "the server given")) if args.base_url else an_engine() as (url, engine):
        try:
            target = load({**os.environ, "VLLM_URL": url}).targets[0]
            samples, readings = measure(target, args.rounds, args.requests)
        except (AbsentError, ConfigError, Failed, OSError, ValueError) as error:
            print(f"benchmarks.beside: {error}", file=sys.stderr)
            return 3
    found = lines([one for one in samples if one.at])
    accounts = [account(window, samples) for window in windows(readings)]
    if args.json:
        data = {"lines": list(map(asdict, found)), "engine": list(map(asdict, accounts))}
        print(json.dumps({"against": engine, "load": os.getloadavg(), **data}, indent=1))
    else:
        show(found, accounts)
    return 0 if all(line.within_bound for line in found) and all(one.agrees for one in accounts) else 1


def measure(target: CanaryTarget, rounds: int, count: int) -> tuple[list[Sample], list[Reading]]:
    """Run the rounds; returns what was measured. Raises AbsentError, Failed, OSError or ValueError."""
    with (
        closing(Server(target, plan.MAX_TOKENS, TIMEOUT)) as server,
        closing(Reference(target.endpoint.base_url)) as reference,
    ):
        model = next(iter(server.clients[0].models()), "")
        three = Three(replace(target, endpoint=replace(target.endpoint, model=model)), server, reference, count)
        samples: list[Sample] = []
        readings: list[Reading] = []
        began = time.monotonic()
        for number in range(rounds):
            parts = ((IN_TURN, three.in_turn), (VLLM, three.vllm))
            for name, part in parts if number % 2 else parts[::-1]:
                before = server.scrape()
                sent = part(number)
                time.sleep(SETTLE)
                readings.append(Reading(name, "", before, server.scrape(), tuple(sent)))
                samples += sent
            print(f"round {number + 1} of {rounds}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return samples, readings


class Three:
    """The clients, and the prompts that they all send."""

    def __init__(self, target: CanaryTarget, server: Server, reference: Reference, count: int) -> None:
        self._target, self._server, self._reference = target, server, reference
        self._count = count
        seed = secrets.token_hex(6)  # a server may be measured twice, and is to be cold again
        self._shared = self._cached_text(seed, server.learn(seed).words_for(TOKENS))
        self._raw = {
            kind: sent_by_client(target.endpoint, server.request((self._message(kind, NO_NONCE),)))
            for kind in (COLD, WARM)
        }

    def in_turn(self, number: int) -> list[Sample]:
        """Send a round of the bench's client and the socket, each first every other time."""
        sent = []
        for place in range(self._count):
            for kind in (COLD, WARM):
                both = (self._by_bench, self._by_socket)
                sent += [one(kind, place, number) for one in (both if place % 2 else both[::-1])]
        return sent

    def vllm(self, number: int) -> list[Sample]:
        """Let `vllm bench serve` send a round. Raises AbsentError or ValueError."""
        kinds = (COLD, WARM) * self._count
        texts = [self._message(kind, secrets.token_hex(6))["content"] for kind in kinds]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompts.json"
            file.write_text(json.dumps([{"conversations": [{"value": text}, {"value": "-"}]} for text in texts]))
            result = bench_serve(
                self._target.endpoint.base_url,
                ("--disable-shuffle", "--save-detailed"),
                model=self._target.endpoint.model,
                dataset_name="sharegpt",
                dataset_path=file,
                sharegpt_output_len=plan.MAX_TOKENS,
                num_prompts=len(texts),
                temperature=0,
                extra_body=json.dumps({"min_tokens": plan.MAX_TOKENS}),
                ready_check_timeout_sec=0,  # it would send the first prompt twice
            )
        if result["completed"] != len(texts):
            raise ValueError(f"vllm bench serve: {result['completed']} of {len(texts)} requests were answered")
        told = zip(kinds, result["ttfts"], result["input_lens"], strict=True)
        return [sample((VLLM, kind, at // 2, number), *one) for at, (kind, *one) in enumerate(told)]

    def _by_bench(self, kind: str, place: int, number: int) -> Sample:
        result: Result = self._server.send((self._message(kind, secrets.token_hex(6)),))
        if result.failure or result.ttft is None:
            raise ValueError(f"the bench's client: {result.failure}")
        return sample((OURS, kind, place, number), result.ttft, result.prompt_tokens, result.cached_tokens)

    def _by_socket(self, kind: str, place: int, number: int) -> Sample:
        raw = self._raw[kind].replace(NO_NONCE.encode(), secrets.token_hex(6).encode())
        found = self._reference.measure(raw)
        return sample((SOCKET, kind, place, number), found.ttft, found.prompt_tokens, found.cached)

    def _cached_text(self, seed: str, words: int) -> str:
        """Return a text that the server has cached, and by whose end all warm prompts have the same share cached.

        That share would vary where a block ended after a nonce's first letters, which two nonces may have in common.
        """
        while True:
            text = plan.text(seed, words)
            found = [self._server.send((message(WARM, text, nonce),)).cached_tokens for nonce in ALIKE]
            if found[1] == found[2]:
                return text
            words += 1

    def _message(self, kind: str, nonce: str) -> Message:
        return message(kind, self._shared, nonce)


def message(kind: str, shared: str, nonce: str) -> Message:
    """Return the prompt: the nonce before or behind what all prompts share."""
    return {"role": "user", "content": f"{nonce} {shared}" if kind == COLD else f"{shared} {nonce}"}


def sample(place: Place, seconds: float, prompt: int | None, cached: int | None = None) -> Sample:
    """Return a request as the bench keeps it: `mode` is its client, `at` its place in the round."""
    client, kind, at, number = place
    return Sample(client, "on", kind, at, number, seconds, seconds, 0.0, prompt, cached=cached)


# --- What comes of it -------------------------------------------------------------------------------------------


def lines(samples: Sequence[Sample]) -> list[Line]:
    """Return a line for each client and kind, the socket's first."""
    return [line(samples, client, kind) for kind in (COLD, WARM) for client in (SOCKET, OURS, VLLM)]


def line(samples: Sequence[Sample], client: str, kind: str) -> Line:
    """Compare a client's rounds with the socket's of the same numbers."""
    own, others = (
        {number: values(group, ttft) for (_, number), group in by_repetition(these).items()}
        for these in ([s for s in samples if s.mode == name and s.kind == kind] for name in (client, SOCKET))
    )
    middle = pooled_median(list(own.values()))
    reference = pooled_median(list(others.values()))
    assert middle
    assert reference
    difference = pooled_difference([(own[number], others[number]) for number in own]) if client != SOCKET else None
    bound = max(MS / 1000, SHARE * reference.value)
    these = [one for one in samples if one.mode == client and one.kind == kind]
    return Line(
        client,
        kind,
        len(these),
        sorted({one.prompt or 0 for one in these}),
        sorted({one.cached for one in these if one.cached is not None}),
        middle,
        difference,
        within_bound=client != OURS or abs(middle.value - reference.value) <= bound,
    )


def account(window: Window, samples: Sequence[Sample]) -> Account:
    """Set the engine's counters of a part beside its requests.

    `vllm bench serve` tells of no cached tokens: its warm prompts are taken to have found what the socket's did.
    """
    sent = [one for one in samples if one.mode in window.stage.split(", ")]
    found = {one.kind: one.cached or 0 for one in samples if one.mode == SOCKET}
    return Account(
        window.stage,
        (len(sent), window.requests),
        (sum(one.prompt or 0 for one in sent), window.prompt),
        (sum(found[one.kind] if one.cached is None else one.cached for one in sent), window.hits),
        (statistics.fmean(values(sent, ttft)), window.ttft.value if window.ttft else None),
    )


def show(found: Sequence[Line], accounts: Sequence[Account]) -> None:
    """Print the report for people."""
    out = console()
    table = Table("client", "arm", "n", "prompt", "cached", "TTFT ms [95 %]", "less the socket's, ms [95 %]")
    for one in found:
        lengths = (", ".join(map(str, values)) or "not told" for values in (one.prompt_tokens, one.cached_tokens))
        table.add_row(one.client, one.kind, str(one.requests), *lengths, ms(one.ttft), ms(one.difference))
    out.print(table)
    told = Table("of the clients / the engine", "requests", "prompt tokens", "hit tokens", "mean TTFT, ms")
    for part in accounts:
        counts = (f"{sent} / {counted}" for sent, counted in (part.requests, part.prompt_tokens, part.hit_tokens))
        means = " / ".join("-" if mean is None else f"{mean * 1000:.2f}" for mean in part.mean_ttft)
        told.add_row(part.part, *counts, means)
    out.print(told)
    out.print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}", style="dim")


if __name__ == "__main__":
    sys.exit(main())
