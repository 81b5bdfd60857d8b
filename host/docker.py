"""Docker through its command line: what is there, what runs, and what its commonest refusals mean."""

import json
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any, Final

from native.errors import NativeError
from native.report import Step
from native.settings import ROOT

SECONDS: Final = 30.0  # for what only asks
LAST_LINES: Final = 8
IPV4: Final = 4
PROJECT_LABEL: Final = "com.docker.compose.project"
SERVICE_LABEL: Final = "com.docker.compose.service"
OLDEST_ENGINE: Final = (20, 10)  # the first with host-gateway
OLDEST_COMPOSE: Final = 2
_HINTS: Final = (
    (r"permission denied", "let this user use Docker: sudo usermod -aG docker $USER, then log in again"),
    (r"[Cc]annot connect|failed to connect|no such file", "start the engine: sudo systemctl start docker"),
    (
        r"could not select device driver",
        "Docker does not see the GPU: install the NVIDIA container toolkit, then nvidia-ctk runtime configure",
    ),
    (
        r"pull access denied|manifest unknown|failed to (do request|resolve)|no such host|TLS handshake",
        "an image is not to be had: name another (GRAFANA_IMAGE=...) or leave the service out (APC_WITHOUT=grafana)",
    ),
    (r"port is already allocated|address already in use", "a port was taken meanwhile: run this again, it names it"),
    (r"no space left", "make room: docker system df shows what holds it"),
)


class NoDockerError(NativeError):
    """There is no engine or no Compose; the message says what is missing and the remedy."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the engine sees it."""

    name: str
    project: str
    service: str
    state: str  # running, restarting, exited, created, ...
    health: str  # healthy, unhealthy, starting; empty where it has no check
    exit_code: int
    restarts: int
    started: datetime
    ports: tuple[int, ...]  # of this machine

    @property
    def uptime(self) -> int:
        """Seconds since it was started."""
        return max(0, int((datetime.now(UTC) - self.started).total_seconds()))


def require() -> str:
    """Return the engine's version; raises NoDockerError."""
    if not shutil.which("docker"):
        raise NoDockerError("Docker is not installed: there is no `docker` command")
    engine = _run(["docker", "version", "--format", "{{.Server.Version}}"])
    version = engine.stdout.strip()
    if engine.returncode or not version:
        raise NoDockerError(f"No Docker engine answers: {_said(engine)}")
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST_ENGINE:
        raise NoDockerError(f"Docker {version} is too old: 20.10 or later is needed")
    compose_version = _run(["docker", "compose", "version", "--short"])
    major = re.match(r"v?(\d+)\.", compose_version.stdout)
    if compose_version.returncode or not major or int(major[1]) < OLDEST_COMPOSE:
        raise NoDockerError(
            "Docker has no Compose v2: install its plugin (docker-compose-plugin, or docker-compose-v2)"
        )
    return version


def compose(argv: Sequence[str], environ: Mapping[str, str], running: Step) -> None:
    """Run a command of Compose; raises NativeError with the last of what it said, and the remedy where it is known."""
    process = subprocess.Popen(  # noqa: S603 - the argv is our own
        ["docker", "compose", *argv],  # noqa: S607
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    said: deque[str] = deque(maxlen=LAST_LINES)
    for line in process.stdout:
        if line.strip():
            said.append(line.rstrip())
            running.tick(line.strip())
    if process.wait():
        raise NativeError(f"`docker compose` failed:\n{_advised(said)}")


def containers(project: str = "") -> list[Container]:
    """Return the containers of a stack, stopped ones too; without a name, all that run."""
    chosen = ["-a", "--filter", f"label={PROJECT_LABEL}={project}"] if project else []
    ids = _ask(["docker", "ps", "-q", *chosen]).split()
    if not ids:
        return []
    shown = _run(["docker", "inspect", "--type", "container", *ids])  # one may be gone meanwhile: it fails for that
    return [_container(entry) for entry in json.loads(shown.stdout or "[]")]


def volumes(project: str) -> list[str]:
    """Return the names of a stack's volumes."""
    return _ask(["docker", "volume", "ls", "-q", "--filter", f"label={PROJECT_LABEL}={project}"]).split()


def gateway() -> str:
    """Return this machine's address in Docker's default network; empty where there is none."""
    shown = _run(["docker", "network", "inspect", "bridge", "--format", "{{json .IPAM.Config}}"])
    for entry in json.loads(shown.stdout.strip() or "null") or ():
        network = ip_network(entry["Subnet"])
        if network.version == IPV4:
            return entry.get("Gateway") or str(next(network.hosts()))  # unsaid until the engine's second start
    return ""


def log(container: str, lines: int = 10) -> str:
    """Return the end of what a container printed."""
    shown = _run(["docker", "logs", "--tail", str(lines), container])
    text = (shown.stdout + shown.stderr).strip()
    return "\n".join(f"    {line}" for line in text.splitlines()) or "    (nothing)"


def remedy(said: str) -> str:
    """Return what to do about an error of Docker's; empty where it is not among the known ones."""
    return next((hint for pattern, hint in _HINTS if re.search(pattern, said)), "")


def _container(entry: Mapping[str, Any]) -> Container:
    state, labels = entry["State"], entry["Config"]["Labels"] or {}
    published = (entry["NetworkSettings"]["Ports"] or {}).values()
    return Container(
        entry["Name"].lstrip("/"),
        labels.get(PROJECT_LABEL, ""),
        labels.get(SERVICE_LABEL, ""),
        state["Status"],
        state.get("Health", {}).get("Status", ""),
        state["ExitCode"],
        entry["RestartCount"],
        datetime.fromisoformat(state["StartedAt"]),
        tuple(sorted({int(binding["HostPort"]) for bindings in published for binding in bindings or ()})),
    )


def _ask(argv: list[str]) -> str:
    run = _run(argv)
    if run.returncode:
        raise NativeError(f"`{' '.join(argv[:2])}` failed: {_said(run)}")
    return run.stdout


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the argv is our own
            argv, capture_output=True, text=True, check=False, timeout=SECONDS, env=os.environ | {"LC_ALL": "C"}
        )
    except subprocess.TimeoutExpired as error:
        raise NoDockerError(f"the Docker engine does not answer within {SECONDS:.0f} s: restart it") from error


def _said(run: subprocess.CompletedProcess[str]) -> str:
    return _advised((run.stderr or run.stdout or "").strip().splitlines()[-LAST_LINES:])


def _advised(lines: Iterable[str]) -> str:
    """Return what a command said, and the remedy where one is known."""
    said = "\n".join(lines) or "it said nothing"
    hint = remedy(said)
    return f"{said}\n{hint[0].upper()}{hint[1:]}." if hint else said
