"""The programs of the stack, as data: adding one is adding an entry.

Text in braces is filled in from the settings by name, and from `root` (the checkout), `run` (the stack's
folder), `python` and each tool of `tools.py`. Keys are in no entry: programs inherit the environment.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from native import grafana
from native.settings import LOOPBACK, ROOT, Port, Settings

EXPORTER_PORT: Final = Port("APC_EXPORTER_PORT", 9391)
PROBE_PORT: Final = Port("APC_PROBE_PORT", 9392)
PROMETHEUS_PORT: Final = Port("PROMETHEUS_PORT", 9390)
ALERTMANAGER_PORT: Final = Port("ALERTMANAGER_PORT", 9393)
GRAFANA_PORT: Final = Port("GRAFANA_PORT", 3300)
DEMO_PORT: Final = Port("DEMO_PORT", 9395)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program; a `required` one that does not get healthy fails the command, another is left out with a word."""

    name: str
    argv: tuple[str, ...]
    tool: str = ""  # the entry of tools.py that runs it; else argv is whole
    environment: Mapping[str, str] = field(default_factory=dict)
    port: Port | None = None
    host: str = LOOPBACK
    health: str = ""  # the path that answers 200; without one, running is healthy
    page: str = ""  # the path that a person wants to see
    job: str = ""  # the Prometheus job that scrapes it
    check: tuple[str, ...] = ()  # validates what it will read; its output is the fault
    reads: tuple[str, ...] = ()  # files and folders whose change asks for a restart
    start_seconds: float = 30.0
    required: bool = True


STACK: Final = (
    Program(
        name="exporter",
        argv=("{python}", "-m", "exporter"),
        environment={
            name: f"{{{name}}}" for name in ("APC_EXPORTER_HOST", "APC_EXPORTER_PORT", "APC_TARGETS", "VLLM_URL")
        },
        port=EXPORTER_PORT,
        host="{APC_EXPORTER_HOST}",
        health="/-/healthy",
        page="/metrics",
        job="apc-exporter",
        check=("{python}", "-m", "exporter", "--check"),
        reads=("{root}/exporter", "{APC_TARGETS}"),
    ),
    Program(
        name="probe",
        argv=("{python}", "-m", "probes"),
        environment={name: f"{{{name}}}" for name in ("APC_PROBE_HOST", "APC_PROBE_PORT", "APC_TARGETS", "VLLM_URL")},
        port=PROBE_PORT,
        host="{APC_PROBE_HOST}",
        health="/-/healthy",
        page="/metrics",
        job="apc-probe",
        check=("{python}", "-m", "probes", "check"),
        reads=("{root}/exporter", "{root}/probes", "{APC_TARGETS}"),
    ),
    Program(
        name="alertmanager",
        tool="alertmanager",
        argv=(
            "--config.file={run}/alertmanager/alertmanager.yml",
            "--storage.path={run}/alertmanager/data",
            "--cluster.listen-address=",  # one alone: it looks for no others
            "--web.listen-address=127.0.0.1:{ALERTMANAGER_PORT}",
        ),
        port=ALERTMANAGER_PORT,
        health="/-/ready",
        page="/",
        job="alertmanager",
        check=("{amtool}", "check-config", "{run}/alertmanager/alertmanager.yml"),
        reads=("{run}/alertmanager/alertmanager.yml",),
        required=False,
    ),
    Program(
        name="prometheus",
        tool="prometheus",
        argv=(
            "--config.file={run}/prometheus/prometheus.yml",
            "--storage.tsdb.path={run}/prometheus/data",
            "--storage.tsdb.retention.time={PROMETHEUS_RETENTION_TIME}",
            "--storage.tsdb.retention.size={PROMETHEUS_RETENTION_SIZE}",
            "--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}",
        ),
        port=PROMETHEUS_PORT,
        health="/-/ready",
        page="/",
        job="prometheus",
        check=("{promtool}", "check", "config", "{run}/prometheus/prometheus.yml"),
        reads=("{run}/prometheus/prometheus.yml", "{run}/prometheus/rules"),
        start_seconds=120.0,  # it replays its log of the last hours first
    ),
    Program(
        name="grafana",
        tool="grafana",
        argv=(),
        environment=grafana.environment(),
        port=GRAFANA_PORT,
        health="/api/health",
        page="/",
        reads=("{run}/grafana/provisioning",),
        start_seconds=120.0,
        required=False,
    ),
)
ENGINES: Final = {
    "simulated": Program(
        name="engine",
        argv=("{python}", "-m", "demo.engine", "--port", "{DEMO_PORT}"),
        port=DEMO_PORT,
        health="/health",
        page="/v1",
    ),
    "vllm": Program(
        name="engine",
        argv=("{python}", "-m", "demo.vllm_cpu", "serve", "--port", "{DEMO_PORT}"),
        port=DEMO_PORT,
        health="/health",
        page="/v1",
        start_seconds=300.0,
    ),
}
TRAFFIC: Final = Program(
    name="traffic",
    argv=("{python}", "-m", "demo.traffic", "--base-url", "http://127.0.0.1:{DEMO_PORT}"),
)


@dataclass(frozen=True, slots=True)
class Service:
    """A program with the settings filled in."""

    program: Program
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    host: str
    port: int  # 0: it has none
    check: tuple[str, ...]
    reads: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def setting(self) -> str:
        """The name of the setting that moves its port."""
        return self.program.port.setting if self.program.port else ""

    @property
    def address(self) -> str:
        """Where it can be reached from here; empty where it has no port."""
        host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"{f'[{host}]' if ':' in host else host}:{self.port}" if self.port else ""

    @property
    def health_url(self) -> str:
        """The page that answers 200 when it is healthy; empty where it has none."""
        return f"http://{self.address}{self.program.health}" if self.program.health else ""

    @property
    def url(self) -> str:
        """The page that a person wants to see; empty where it has none."""
        return f"http://{self.address}{self.program.page}" if self.program.page else ""


def ports(programs: Iterable[Program]) -> list[Port]:
    """Return the ports of the programs."""
    return [program.port for program in programs if program.port]


def resolve(program: Program, settings: Settings, tools: Mapping[str, tuple[str, ...]]) -> Service:
    """Fill in the settings; `tools` has the beginning of each tool's argv."""
    values = dict(settings.values) | {"root": str(ROOT), "run": str(settings.run), "python": sys.executable}
    values |= {tool: argv[0] for tool, argv in tools.items()}

    def fill(text: str) -> str:
        return text.format_map(values)

    return Service(
        program,
        (*(tools[program.tool] if program.tool else ()), *map(fill, program.argv)),
        {name: fill(value) for name, value in program.environment.items()},
        fill(program.host),
        int(values[program.port.setting]) if program.port else 0,
        tuple(map(fill, program.check)),
        tuple(ROOT / path for text in program.reads if (path := fill(text))),
    )
