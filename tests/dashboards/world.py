"""An old and a new Prometheus that scraped the real exporter and probe before simulated engines, one for each state."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from demo.engine import serving
from demo.rank import Settings
from demo.traffic import Plan, Traffic
from exporter.engine import Dialect
from native.tools import ensure
from tests.conftest import NEWER, OLDER, ROOT
from tests.environ import inherited
from tests.generations import newer
from tests.sockets import free_port

SECONDS: Final = 35.0  # of traffic before queries are asked
SCRAPE_SECONDS: Final = 2
SUBQUERY_STEP: Final = 15  # seconds, in the queries
SETTLING: Final = 5
DOWN_AFTER: Final = 12.0
WORKING, ZERO_HITS, IDLE, DOWN, V0 = "working", "zero_hits", "idle", "down", "v0"
GATEWAY: Final = "gateway"


@dataclass(frozen=True)
class World:
    """What one Prometheus saw of it, and where that is."""

    url: str

    def get(self, path: str, **params: str) -> Any:
        """Return the data of an API call; fails with Prometheus' own words."""
        try:
            with urlopen(f"{self.url}/api/v1/{path}?{urlencode(params)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except URLError as error:
            raise AssertionError(getattr(error, "read", lambda: b"")().decode() or str(error)) from error

    def count(self, expr: str, at: float, seconds: float = 0) -> int:
        """Return how many series a query has at a time, or over so many seconds before it."""
        if not seconds:
            return len(self.get("query", query=expr, time=str(at))["result"])
        return len(self.get("query_range", query=expr, start=str(at - seconds), end=str(at), step="1")["result"])

    def label_values(self, query: str) -> list[str]:
        """Return what Grafana offers for a variable."""
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found, query
        values: list[str] = self.get(f"label/{found[2]}/values", **{"match[]": found[1]})
        return values


def settled() -> float:
    """Return a time at which scrapes and rules are through, soon after a step of subqueries."""
    while not SETTLING <= time.time() % SUBQUERY_STEP < SETTLING + 1:
        time.sleep(0.2)
    return time.time() - SCRAPE_SECONDS


@contextmanager
def world(folder: Path, others: Mapping[str, str] | None = None) -> Iterator[dict[str, World]]:
    """Build it, let it run for a while and yield it as each generation of Prometheus saw it.

    `others` are engines that run already, by target: they get traffic as one that works does.
    """
    others = others or {}
    old = Settings(dialect=Dialect.VLLM_V0, version=(0, 8, 5))
    with ExitStack() as stack:
        engines = {name: stack.enter_context(serving(Settings(blocks=600))) for name in (WORKING, ZERO_HITS, IDLE)}
        engines |= {V0: stack.enter_context(serving(old))}
        exporter, probe, doomed = (free_port() for _ in range(3))
        urls = {name: engine.url for name, engine in engines.items()} | {DOWN: f"http://127.0.0.1:{doomed}", **others}
        targets = folder / "targets.yaml"
        targets.write_text(yaml.safe_dump({"targets": [{"name": name, "url": url} for name, url in urls.items()]}))
        environ = {
            "APC_TARGETS": str(targets),
            "APC_EXPORTER_PORT": str(exporter),
            "APC_PROBE_PORT": str(probe),
            "APC_CANARY_INTERVAL": "2",
            "APC_CANARY_TOKENS_PER_MINUTE": "1000000",
            "GATEWAY_BASE_URL": engines[WORKING].url,
            "GATEWAY_API_KEY": "k",
            "GATEWAY_MODEL": engines[WORKING].settings.model,
            "GATEWAY_INTERVAL": "2",
            "GATEWAY_CURVE_INTERVAL": "3600",
            "GATEWAY_TOKENS_PER_MINUTE": "1000000",
        }
        for module in ("exporter", "probes"):
            stack.enter_context(_running([sys.executable, "-m", module], folder / f"{module}.log", environ))
        _configure(folder, {"apc-exporter": exporter, "apc-probe": probe})
        programs = {OLDER: ensure("prometheus")["prometheus"][0], NEWER: newer("prometheus")}
        found = {name: stack.enter_context(_prometheus(program, folder, name)) for name, program in programs.items()}
        for name in (WORKING, ZERO_HITS, V0):
            stack.enter_context(_traffic(engines[name].url, "timestamp" if name == ZERO_HITS else "none"))
        for url in others.values():
            stack.enter_context(_traffic(url, "none"))
        with _running([sys.executable, "-m", "demo.engine", "--port", str(doomed)], folder / "engine.log", {}):
            time.sleep(DOWN_AFTER)
        time.sleep(SECONDS - DOWN_AFTER)
        yield found


@contextmanager
def _prometheus(program: str, folder: Path, name: str) -> Iterator[World]:
    port = free_port()
    argv = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / name}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with _running(argv, folder / f"{name}.log", {}):
        yield World(f"http://127.0.0.1:{port}")


def _configure(folder: Path, jobs: Mapping[str, int]) -> None:
    """Write a configuration with the stack's own rules, evaluated every second."""
    rules = folder / "rules"
    rules.mkdir()
    for path in (ROOT / "prometheus" / "rules").glob("*.yml"):
        often = re.sub(r"(?m)^(    interval:) \S+", r"\1 1s", path.read_text(encoding="utf-8"))
        (rules / path.name).write_text(often, encoding="utf-8")
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "1s"},
        "rule_files": [str(rules / "*.yml")],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in jobs.items()
        ],
    }
    firing = [
        {"alert": alert, "expr": "vector(1)", "labels": {"severity": "page", "target": target}}
        for alert, target in (("ApcHitRateZero", WORKING), ("ApcEngineDown", DOWN))
    ]
    (rules / "firing.yml").write_text(yaml.safe_dump({"groups": [{"name": "firing", "rules": firing}]}))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")


@contextmanager
def _running(argv: list[str], log: Path, environ: dict[str, str]) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(argv, cwd=ROOT, env=inherited() | environ, stdout=output, stderr=output)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def _traffic(url: str, poison: str) -> Iterator[None]:
    stop = threading.Event()
    plan = Plan(url=url, model=Settings.model, rate=3.0, poison=poison, max_tokens=8)
    thread = threading.Thread(target=Traffic(plan, stop).run, args=(600.0,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
