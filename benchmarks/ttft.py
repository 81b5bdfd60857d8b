"""How exact the canary's TTFT is: `python -m benchmarks.ttft [--base-url URL] [--requests 100] [--json]`.

The requests go in pairs: one through `probes.client.Client`, the other, the same bytes but for the prompt's nonce,
over a bare socket that is read by nothing but `recv`. Both prompts of a pair are equally long and equally cold, and
no prompt is sent twice. Which of the two goes first changes from pair to pair, so that neither is favoured.
Beside it, `vllm bench serve` measures the same server with prompts of its own: for comparison, without a bound.
"""

import argparse
import json
import os
import re
import secrets
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from benchmarks.vllm_bench import AbsentError, bench_serve
from demo import vllm_cpu
from probes import plan
from probes.client import Client, Endpoint, Request
from probes.outcome import Failed

PORT = 9344
TOKENS = 1000  # of a prompt, about
TRIAL_WORDS = 200  # of the prompt by which the tokens of a word are counted
WARMUP = 5  # pairs of each kind that do not count
PAUSE = 0.05  # seconds before a pair, for the server to be done with the one before
MS, SHARE = 2.0, 0.03  # the bound: the larger of the two, the second of the reference's median
COLD, WARM = "cold", "warm"
NO_NONCE = "0" * 12
EXTRA = {"ignore_eos": True}
PREFIX, SUFFIX = TOKENS - 50, 50  # tokens of a prompt of `vllm bench serve`


@dataclass(frozen=True)
class Measured:
    """TTFT in seconds and what the usage says; `cached` is None where it says nothing."""

    ttft: float
    prompt_tokens: int | None
    cached: int | None


Pair = tuple[Measured, Measured]  # the client's, the reference's


def main() -> int:
    """Measure and print; exit code 0 if the bound holds, 1 if not, 2 for a wrong call, 3 if it could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ttft", description=__doc__)
    parser.add_argument("--base-url", help="a running server, http only; else one is started. VLLM_API_KEY is its key")
    parser.add_argument("--requests", type=int, default=100, help="of each of the two, half of them cold")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.requests < 4 or (args.base_url and urlsplit(args.base_url).scheme != "http"):  # noqa: PLR2004
        parser.error("at least 4 requests, and a URL that starts with http://")
    with nullcontext((args.base_url, "the server given")) if args.base_url else an_engine() as (url, engine):
        try:
            pairs = measure(Endpoint(url.rstrip("/"), os.environ.get("VLLM_API_KEY", "")), args.requests)
        except (Failed, OSError, ValueError) as error:
            print(f"benchmarks.ttft: {error}", file=sys.stderr)
            return 3
        report: dict[str, Any] = {"engine": engine, **{kind: compared(pairs[kind]) for kind in pairs}}
        report["vllm bench serve"] = {
            COLD: vllm_bench(url, args.requests, prefixes=args.requests),
            WARM: vllm_bench(url, args.requests, prefixes=1),
        }
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 0 if report[COLD]["within_bound"] and report[WARM]["within_bound"] else 1


@contextmanager
def an_engine() -> Iterator[tuple[str, str]]:
    """Run a real vLLM where `make test-engine` has installed one, else the simulated engine; yield URL and kind."""
    try:
        with vllm_cpu.running(vllm_cpu.default_home(), PORT) as url:
            yield url, f"a real vLLM, {vllm_cpu.PACKAGE}"
    except vllm_cpu.EngineError as error:
        print(f"benchmarks.ttft: the simulated engine, for there is no real one: {error}", file=sys.stderr)
        argv = [sys.executable, "-m", "demo.engine", "--port", "0"]  # a process of its own, as a real one
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as engine:
            assert engine.stdout
            try:
                yield engine.stdout.readline().partition(" on ")[2].partition(",")[0], "the simulated engine"
            finally:
                engine.terminate()


# --- The two measurements ---------------------------------------------------------------------------------------


def measure(endpoint: Endpoint, count: int) -> dict[str, list[Pair]]:
    """Send that many requests each way, half of them cold, in turn; Failed, OSError or ValueError if one fails."""
    with closing(Client(endpoint)) as asking:
        endpoint = replace(endpoint, model=next(iter(asking.models()), ""))
    seed = secrets.token_hex(6)  # a server may be measured twice, and is to be cold again
    with closing(Client(endpoint)) as client, closing(Reference(endpoint.base_url)) as reference:
        trial = by_client(client, request(plan.text(seed, TRIAL_WORDS), NO_NONCE))
        shared = plan.text(seed, TRIAL_WORDS * TOKENS // (trial.prompt_tokens or TRIAL_WORDS))
        sent = {kind: sent_by_client(endpoint, prompt(kind, shared, NO_NONCE)) for kind in (COLD, WARM)}

        def pair(kind: str, *, client_first: bool) -> Pair:
            ours, theirs = secrets.token_hex(6), secrets.token_hex(6)
            raw = sent[kind].replace(NO_NONCE.encode(), theirs.encode())
            time.sleep(PAUSE)
            if client_first:
                return by_client(client, prompt(kind, shared, ours)), reference.measure(raw)
            other = reference.measure(raw)
            return by_client(client, prompt(kind, shared, ours)), other

        pairs: dict[str, list[Pair]] = {COLD: [], WARM: []}
        for number in range(WARMUP + (count + 1) // 2):
            for kind, measured in pairs.items():
                measured.append(pair(kind, client_first=number % 2 == 0))
    return {kind: measured[WARMUP:] for kind, measured in pairs.items()}


def prompt(kind: str, shared: str, nonce: str) -> Request:
    """Return the request whose nonce stands at the prompt's head too, or only after what all prompts share."""
    return request(f"{nonce} {shared}" if kind == COLD else shared, nonce)


def request(system: str, nonce: str) -> Request:
    """Return a request as the canary sends it."""
    return Request(plan.messages(system, plan.TAIL.format(nonce=nonce)), plan.MAX_TOKENS, EXTRA)


def by_client(client: Client, asked: Request) -> Measured:
    """Measure with the canary's client. Raises Failed."""
    result = client.send(asked)
    if result.failure:
        raise Failed(result.failure)
    assert result.ttft is not None
    return Measured(result.ttft, result.prompt_tokens, result.cached_tokens)


def sent_by_client(endpoint: Endpoint, asked: Request) -> bytes:
    """Return what the client sends for that request, byte by byte, by letting it ask a socket that never answers."""
    host = urlsplit(endpoint.base_url).netloc
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        here = f"127.0.0.1:{listener.getsockname()[1]}"
        with closing(Client(replace(endpoint, base_url=endpoint.base_url.replace(host, here, 1)))) as client:
            thread.submit(client.send, asked)
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as reader:
                head = b"".join(iter(reader.readline, b"\r\n"))
                length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
                assert length
                body = reader.read(int(length[1]))
    return head.replace(here.encode(), host.encode()) + b"\r\n" + body


class Reference:
    """A bare socket to a server, kept open. It reads first and looks at what it has read afterwards."""

    def __init__(self, base_url: str) -> None:
        self._address = urlsplit(base_url).hostname or "", urlsplit(base_url).port or 80
        self._socket = self._connected()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def measure(self, raw: bytes) -> Measured:
        """Send the request; the TTFT ends with the `recv` that completed the first event with a token."""
        self._renew()
        received = bytearray()
        arrivals: list[tuple[float, int]] = []  # when, and how many bytes had come by then
        began = time.perf_counter()
        self._socket.sendall(raw)
        while not received.endswith(b"\r\n0\r\n\r\n"):
            piece = self._socket.recv(65_536)
            arrivals.append((time.perf_counter(), len(received) + len(piece)))
            received += piece
            if not piece or not received.startswith(b"HTTP/1.1 200"):
                raise ValueError(f"the reference got no whole answer: {bytes(received[:200])!r}")
        first, usage = 0, dict[str, Any]()
        for size, event in events(bytes(received)):
            usage = event.get("usage") or usage
            first = first or (size if bears_token(event) else 0)
        ttft = next(at for at, size in arrivals if size >= first > 0) - began
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return Measured(ttft, usage.get("prompt_tokens"), cached)

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(self._address, timeout=60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _renew(self) -> None:
        """Connect again if the server has closed the connection, idle while the client was served."""
        if select.select([self._socket], [], [], 0)[0]:  # between two answers nothing but the end can come
            self._socket.close()
            self._socket = self._connected()


def events(raw: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each event of a chunked answer, and the number of the answer's bytes that end with it."""
    start, text = raw.index(b"\r\n\r\n") + 4, b""
    while size := int(raw[start : raw.index(b"\r\n", start)], 16):
        start = raw.index(b"\r\n", start) + 2
        *whole, text = (text + raw[start : start + size]).split(b"\n\n")
        yield from ((start + size, json.loads(event[6:])) for event in whole if event.startswith(b"data: {"))
        start += size + 2


def bears_token(event: dict[str, Any]) -> bool:
    """Whether it has text, or the engine counts a token in it: one may be half a letter, without text."""
    counted = (event.get("usage") or {}).get("completion_tokens", 0) > 0
    return any(choice["delta"].get("content") or counted for choice in event["choices"])


# --- What comes of it -------------------------------------------------------------------------------------------


def compared(pairs: list[Pair]) -> dict[str, Any]:
    """Return medians and differences, in ms but for `percent`; differences are the client's less the reference's.

    `noise_ms` is the standard error of a median of such pairs: on a busy machine it is larger than the bound, and
    whether the bound holds is chance.
    """
    ours, theirs = ([1000 * measured.ttft for measured in column] for column in zip(*pairs, strict=True))
    client, reference = statistics.median(ours), statistics.median(theirs)
    quartiles = statistics.quantiles([a - b for a, b in zip(ours, theirs, strict=True)], n=4)
    noise = 0.93 * (quartiles[2] - quartiles[0]) / len(pairs) ** 0.5
    return {
        "pairs": len(pairs),
        "prompt_tokens": sorted({measured.prompt_tokens or 0 for pair in pairs for measured in pair}),
        "cached_tokens": sorted({measured.cached or 0 for pair in pairs for measured in pair}),
        "client_ms": round(client, 3),
        "reference_ms": round(reference, 3),
        "difference_ms": round(client - reference, 3),
        "difference_percent": round(100 * (client / reference - 1), 2),
        "pairwise_quartiles_ms": [round(quartile, 3) for quartile in quartiles],
        "noise_ms": round(noise, 3),
        "within_bound": abs(client - reference) <= max(MS, SHARE * reference),
    }


def show(report: dict[str, Any]) -> None:
    """Print the report for people."""
    print(f"against {report['engine']}; ms")
    for name in (COLD, WARM):
        print(name, *(f"  {key:<22} {value}" for key, value in report[name].items()), sep="\n")
    print("vllm bench serve", *(f"  {kind}  {found}" for kind, found in report["vllm bench serve"].items()), sep="\n")


# --- vLLM's own benchmark ---------------------------------------------------------------------------------------


def vllm_bench(url: str, count: int, *, prefixes: int) -> dict[str, float] | str:
    """Let `vllm bench serve` measure the server, one request at a time; its TTFT in ms, or why there is none."""
    try:
        result = bench_serve(
            url,
            dataset_name="prefix_repetition",
            prefix_repetition_num_prefixes=prefixes,
            prefix_repetition_prefix_len=PREFIX,
            prefix_repetition_suffix_len=SUFFIX,
            prefix_repetition_output_len=plan.MAX_TOKENS,
            num_prompts=count,
            seed=secrets.randbelow(2**31),
        )
    except AbsentError as error:
        return str(error)
    told = {name: round(result[name], 2) for name in ("completed", "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms")}
    return told | {"mean_prompt_tokens": round(result["total_input_tokens"] / result["completed"])}


if __name__ == "__main__":
    sys.exit(main())
