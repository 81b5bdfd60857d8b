"""A stack in Docker for tests: a project of Compose with files and ports of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from host import docker
from host.docker import Container
from host.services import SERVICES
from native import web
from native.settings import ROOT
from tests.environ import inherited
from tests.waiting import free_ports

# The public images, or what stands in for them where none can be pulled. Grafana has no stand-in.
IMAGES = {
    "PYTHON_IMAGE": "apc-test/python",
    "PROMETHEUS_IMAGE": "apc-test/prometheus",
    "ALERTMANAGER_IMAGE": "apc-test/alertmanager",
}
PORTS = [service.port.setting for service in SERVICES if service.port]


class Stack:
    """A project of Compose with files and ports of its own; `host` runs a command on it."""

    def __init__(self, folder: Path, name: str, **environ: str) -> None:
        self.project = f"apc-test-{name}-{os.getpid()}"
        self.environ = {**dict(zip(PORTS, free_ports(len(PORTS)), strict=True)), **environ}
        self.environ |= {name: os.environ.get(name, image) for name, image in IMAGES.items()}
        self.environ |= {"COMPOSE_PROJECT_NAME": self.project, "APC_SCRAPE_INTERVAL": "1s"}
        self.environ |= {"APC_ENV_FILE": str(folder / "env"), "APC_RUN_DIR": str(folder / "run")}

    def host(self, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "host", *argv],
            cwd=ROOT,
            env=inherited() | self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def up(self, **environ: str) -> str:
        run = self.host("up", **environ)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def containers(self) -> dict[str, Container]:
        return {container.service: container for container in docker.containers(self.project)}

    def url(self, setting: str, path: str = "") -> str:
        return f"http://127.0.0.1:{self.environ[setting]}{path}"

    def query(self, expression: str, at: float | None = None) -> list[float]:
        """Return the values of an instant query; empty while Prometheus starts."""
        moment = f"&time={at}" if at else ""
        try:
            answer = web.get(self.url("PROMETHEUS_PORT", f"/api/v1/query?query={quote(expression)}{moment}"))
        except web.FAILURES:
            return []
        found = json.loads(answer.text)["data"]["result"] if answer.status == 200 else []
        return [float(series["value"][1]) for series in found]


def ask(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=ROOT, env=inherited() | environ, capture_output=True, text=True, check=False, timeout=120
    )
