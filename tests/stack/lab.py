"""The fault lab: the whole stack in front of many simulated engines, in a time that runs faster, and who is told what.

One exporter, one probe, and two generations of Prometheus and Alertmanager that watch them: the stack's own, started as
`make up` does, and a newer pair on the same configuration. Both notify one webhook receiver.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

import pytest
import yaml

from demo.traffic import Plan, Traffic
from native import folder as places
from native import settings, stack, supervisor
from native.programs import STACK, Program, ports
from native.settings import ROOT
from prometheus import receivers
from tests.conftest import NEWER, OLDER
from tests.environ import inherited
from tests.generations import newer
from tests.sockets import free_port
from tests.stack.receiver import Receiver
from tests.stack.shorten import shorten

TIMES: Final = 15  # faster than production: a scrape and an evaluation each second
CANARY_SECONDS: Final = 60 / TIMES
MODEL: Final = "qwen2.5-7b-instruct"
LOOKBACK: Final = f"--query.lookback-delta={300 // TIMES}s"
GENERATIONS: Final = (OLDER, NEWER)


class Lab:
    """What a test switches and looks at."""

    def __init__(self, folder: Path, engines: Mapping[str, Sequence[str]], others: Mapping[str, str]) -> None:
        self.run = folder / "run"
        self.receiver = Receiver()
        self._folder = folder
        self._engines = engines
        self._ports = {name: free_port() for name in engines}
        self._urls = {name: f"http://127.0.0.1:{port}" for name, port in self._ports.items()} | dict(others)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._traffic: dict[str, ExitStack] = {}

    def url(self, target: str) -> str:
        return self._urls[target]

    def start_engine(self, target: str, flags: Sequence[str] | None = None) -> None:
        """Start an engine, ending the one that ran, with its own flags or others."""
        if running := self._running.pop(target, None):
            running.kill()
            running.wait()
        argv = [sys.executable, "-m", "demo.engine", "--port", str(self._ports[target])]
        self._running[target] = self._spawn([*argv, *(self._engines[target] if flags is None else flags)], target)

    def switch(self, target: str, **faults: object) -> None:
        """Switch faults of an engine on; None switches one off."""
        request = Request(f"{self.url(target)}/demo/faults", json.dumps(faults).encode(), method="POST")
        with urlopen(request, timeout=10) as answer:
            assert answer.status == 200

    def send(self, target: str, *plans: Plan) -> None:
        """Send this traffic in place of what is sent."""
        self._traffic.pop(target, ExitStack()).close()
        sending = self._traffic[target] = ExitStack()
        for plan in plans:
            stop = threading.Event()
            traffic = Traffic(replace(plan, url=self.url(target), model=MODEL), stop)
            threading.Thread(target=traffic.run, args=(1e6,), daemon=True).start()
            sending.callback(stop.set)

    def stop_program(self, name: str) -> None:
        """End a program of the stack, and keep it ended."""
        self._supervisor()._call("stopProcess", name, True)  # noqa: SLF001 - the stack stops none alone

    def start_program(self, name: str) -> None:
        self._supervisor().start(name)

    def _supervisor(self) -> supervisor.Supervisor:
        return supervisor.Supervisor(places.socket(self.run))

    def start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for target in self._engines:
            self.start_engine(target)
        monkeypatch.setattr(stack, "SOURCES", self._shortened())
        environ = self._environ()
        programs = [_faster(program) for program in STACK if program.name != "grafana"]
        stack.up(settings.read(environ, ports(programs)), programs)
        self._start_newer()

    def close(self) -> None:
        for sending in self._traffic.values():
            sending.close()
        stack.down(self.run)
        for process in self._running.values():
            process.kill()
            process.wait()
        self.receiver.close()

    def _shortened(self) -> Path:
        sources = self._folder / "sources"
        (sources / "rules").mkdir(parents=True)
        for path in (stack.SOURCES / "rules").glob("*.yml"):
            (sources / "rules" / path.name).write_text(shorten(path.read_text(encoding="utf-8"), TIMES))
        (sources / "prometheus.yml").write_text((stack.SOURCES / "prometheus.yml").read_text(encoding="utf-8"))
        routes = (stack.SOURCES / "alertmanager.yml").read_text(encoding="utf-8")
        (sources / "alertmanager.yml").write_text(shorten(routes, TIMES))
        return sources

    def _environ(self) -> dict[str, str]:
        targets = self._folder / "targets.yaml"
        listed = [{"name": name, "url": self.url(name)} for name in self._urls]
        targets.write_text(yaml.safe_dump({"targets": listed}), encoding="utf-8")
        chosen = {port.setting: str(free_port()) for port in ports(STACK)}
        return (
            inherited()
            | chosen
            | {
                "APC_RUN_DIR": str(self.run),
                "APC_TARGETS": str(targets),
                "APC_SCRAPE_INTERVAL": "1s",
                "APC_CANARY_INTERVAL": f"{CANARY_SECONDS:g}",
                "APC_CANARY_TOKENS_PER_MINUTE": str(20_000 * TIMES),
                "APC_CANARY_TIMEOUT": f"{30 / TIMES:g}",
                "APC_CANARY_FIRST_TOKEN_TIMEOUT": f"{20 / TIMES:g}",
                receivers.WEBHOOK.name: str(self._hook(OLDER)),
            }
        )

    def _hook(self, generation: str) -> Path:
        path = self._folder / f"hook-{generation}"
        path.write_text(self.receiver.url(generation), encoding="utf-8")
        return path

    def _start_newer(self) -> None:
        """Start the newer pair on what the older one reads, but for whom it notifies."""
        home, alerts = self._folder / "newer", free_port()
        home.mkdir()
        (home / "rules").symlink_to(self.run / "prometheus" / "rules")
        (home / "targets").mkdir()
        for path in (self.run / "prometheus" / "targets").iterdir():
            (home / "targets" / path.name).write_text(path.read_text())
        (home / "targets" / "alertmanager.yml").write_text(f"- targets: ['127.0.0.1:{alerts}']\n")
        (home / "prometheus.yml").write_text((self.run / "prometheus" / "prometheus.yml").read_text())
        routes = (self._folder / "sources" / "alertmanager.yml").read_text(encoding="utf-8")
        environ = {receivers.WEBHOOK.name: str(self._hook(NEWER))}
        (home / "alertmanager.yml").write_text(receivers.render(routes, environ))
        prometheus = [
            newer("prometheus"),
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{free_port()}",
            LOOKBACK,
        ]
        alertmanager = [
            newer("prometheus-alertmanager"),
            f"--config.file={home / 'alertmanager.yml'}",
            f"--storage.path={home / 'alerts'}",
            f"--web.listen-address=127.0.0.1:{alerts}",
            "--cluster.listen-address=",
        ]
        for argv, name in (alertmanager, "newer-alertmanager"), (prometheus, "newer-prometheus"):
            self._running[name] = self._spawn(argv, name)

    def _spawn(self, argv: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)


@contextmanager
def lab(folder: Path, engines: Mapping[str, Sequence[str]], others: Mapping[str, str] | None = None) -> Iterator[Lab]:
    """Start it in front of engines, given their flags by target, and end all of it; others run already, at a URL."""
    found = Lab(folder, engines, others or {})
    with pytest.MonkeyPatch.context() as monkeypatch:
        try:
            found.start(monkeypatch)
            yield found
        finally:
            found.close()


def _faster(program: Program) -> Program:
    return replace(program, argv=(*program.argv, LOOKBACK)) if program.name == "prometheus" else program
