"""What the exporter costs: `python -m benchmarks.exporter [--engine-url URL] [--json]`.

Every figure is a ratio or a growth within one run, so that a slow machine does not matter. The engines of the
scaling part answer with a captured `/metrics` of vLLM 0.32; they share the machine's cores with the exporter.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import requests
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.fixed_engines import CAPTURE, PORT_LINE
from demo import vllm_cpu
from demo.engine import serving
from exporter.collector import Collector
from exporter.config import Settings, Target
from exporter.read import read
from exporter.server import exposition

SPEEDUP, RATIO, SERIES, BYTES, STRAIGHT = 10, 1.3, 0.25, 0.15, 0.98
SIZES = (1, 50, 100, 200, 300, 400, 500)


def main() -> int:
    """Run all parts and print them; exit code 0 if every bound holds, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exporter", description=__doc__)
    parser.add_argument("--engine-url", help="a running engine for the second figure; else one is started")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    figures = {"read": reading(), "answer": answering(args.engine_url), **scaling()}
    bounds = {
        "reading is at least 10 times faster than prometheus_client's parser": figures["read"]["speedup"] >= SPEEDUP,
        "the whole answer takes at most 1.3 times the engine's own": figures["answer"]["ratio"] <= RATIO,
        "at most 25 % of the series go out": figures["size"]["series_share"] <= SERIES,
        "at most 15 % of the bytes go out": figures["size"]["bytes_share"] <= BYTES,
        "time grows in a straight line": figures["growth"]["seconds_r2"] >= STRAIGHT,
    }
    if args.json:
        print(json.dumps({**figures, "bounds": bounds}, indent=1))
    else:
        for name, values in figures.items():
            print(name, *(f"  {key:<28} {value}" for key, value in values.items()), sep="\n")
        print("bounds", *(f"  {'ok  ' if held else 'MISS'} {name}" for name, held in bounds.items()), sep="\n")
    return 0 if all(bounds.values()) else 1


def interleaved(count: int, one: Callable[[], object], other: Callable[[], object]) -> dict[str, float]:
    """Time two calls in turn; returns medians in ms and the median of the pairs' ratios, with quartiles."""
    pairs = [(_seconds(one), _seconds(other)) for _ in range(count)]
    low, middle, high = statistics.quantiles([a / b for a, b in pairs], n=4)
    ours, theirs = (1000 * statistics.median(column) for column in zip(*pairs, strict=True))
    return {"ms": round(ours, 3), "other_ms": round(theirs, 3), "ratio": middle, "from": low, "to": high, "n": count}


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def reading() -> dict[str, float]:
    """Time parse and snapshot of the newest capture against the client library's parser on the same text."""
    body, text = CAPTURE.read_bytes(), CAPTURE.read_text(encoding="utf-8")
    found = interleaved(60, lambda: list(text_string_to_metric_families(text)), lambda: read(body))
    return {
        "prometheus_client_ms": found["ms"],
        "ours_ms": found["other_ms"],
        "speedup": round(found["ratio"], 1),
        "quartiles": f"{found['from']:.1f} to {found['to']:.1f}",  # type: ignore[dict-item]
        "n": found["n"],
    }


def answering(engine_url: str | None) -> dict[str, float]:
    """Time the exporter's whole `/metrics` answer against fetching the engine's directly."""
    with nullcontext(engine_url) if engine_url else an_engine() as url, exporter(url) as ours:
        found = interleaved(300, lambda: fetch(f"{ours}/metrics"), lambda: fetch(f"{url}/metrics"))
    return {
        "ours_ms": found["ms"],
        "engine_ms": found["other_ms"],
        "ratio": round(found["ratio"], 2),
        "quartiles": f"{found['from']:.2f} to {found['to']:.2f}",  # type: ignore[dict-item]
        "n": found["n"],
    }


@contextmanager
def an_engine() -> Iterator[str]:
    """Run a real vLLM where `make test-engine` has installed one, else the simulated engine."""
    try:
        with vllm_cpu.running(vllm_cpu.default_home(), 9312) as url:
            print("second figure: against a real vLLM", file=sys.stderr)
            yield url
    except vllm_cpu.EngineError:
        print("second figure: against the simulated engine; `make test-engine` installs a real one", file=sys.stderr)
        with serving() as engine:
            yield engine.url


def scaling() -> dict[str, dict[str, float]]:
    """One scrape of 1 to 500 engines: seconds, MB, and what goes out against what came in."""
    with fixed_engines(max(SIZES)) as ports:
        rows = [_row(ports[:size]) for size in SIZES]
    sizes, seconds, megabytes = zip(*rows, strict=True)
    with fixed_engines(2) as ports:
        one, two = (_exposition(ports[:count]) for count in (1, 2))
    body = CAPTURE.read_bytes()
    return {
        "scrape": {
            f"{size} engines": f"{s:.3f} s, {mb:.0f} MB"  # type: ignore[misc]
            for size, s, mb in zip(sizes, seconds, megabytes, strict=True)
        },
        "growth": {
            "ms_per_engine": round(1000 * statistics.linear_regression(sizes, seconds).slope, 2),
            "seconds_r2": round(statistics.correlation(sizes, seconds) ** 2, 4),
            "kb_per_engine": round(1000 * statistics.linear_regression(sizes, megabytes).slope, 1),
        },
        "size": {
            "series_share": round((_series(two) - _series(one)) / _series(body), 3),
            "bytes_share": round((len(two) - len(one)) / len(body), 3),
        },
    }


def _row(ports: list[int]) -> tuple[int, float, float]:
    """Scrape these engines in a process of its own, so that its memory is its own too."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.one_scrape", *map(str, ports)], capture_output=True, text=True, check=True
    )
    seconds, megabytes = map(float, ran.stdout.split())
    return len(ports), seconds, megabytes


def _exposition(ports: list[int]) -> bytes:
    collector = Collector(settings([f"http://127.0.0.1:{port}" for port in ports]))
    body, _ = exposition(collector.collect())
    collector.close()
    return body


def _series(text: bytes) -> int:
    return sum(1 for line in text.splitlines() if line and not line.startswith(b"#"))


def settings(urls: list[str]) -> Settings:
    """Return settings for these engines, with a time limit that does not bind."""
    targets = tuple(Target(f"gpu-{i}", url, f"{url}/metrics") for i, url in enumerate(urls))
    return Settings(targets, "127.0.0.1", 0, 60.0, 2**24)


@contextmanager
def fixed_engines(count: int) -> Iterator[list[int]]:
    """Run that many engines that answer from the capture; yields their ports."""
    command = [sys.executable, "-m", "benchmarks.fixed_engines", str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ports = process.stdout.readline().removeprefix(PORT_LINE)
        try:
            yield json.loads(ports)
        finally:
            process.terminate()


@contextmanager
def exporter(url: str) -> Iterator[str]:
    """Run the exporter as it is run in earnest, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = os.environ | {"VLLM_URL": url, "APC_EXPORTER_PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, "-m", "exporter"], env=environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert "serving" in process.stderr.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def fetch(url: str) -> bytes:
    """GET on a connection of its own, as the exporter does."""
    return requests.get(url, timeout=60).content


if __name__ == "__main__":
    assert Path("exporter").is_dir(), "run it from the repository's root"
    sys.exit(main())
