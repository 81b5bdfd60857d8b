"""The commands: each prints for people and returns its exit code, 0 where all is well."""

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from host import docker, files, reach, settings, stack
from host.docker import Container, NoDockerError
from host.services import SERVICES, Placed
from native import cli, demo, engines, envfile, figures, processes
from native import commands as native
from native.errors import NativeError
from native.report import table
from native.settings import LOOPBACK, ROOT, run_folder

FINE: Final = 0
FAULT: Final = 1


def up(args: argparse.Namespace) -> int:
    """Start the stack and print its pages; without Docker, the native one."""
    try:
        version = docker.require()
    except NoDockerError as missing:
        print(f"  {missing}\n  So the stack starts without Docker, as `python -m native up` does.\n")
        return native.up(args)
    print(f"  Docker {version}")
    chosen = settings.read(os.environ)
    ready, url = stack.up(chosen)
    print()
    for place in ready:
        if place.url:
            hint = f" (user admin, password in {chosen.project.env_file})" if place.service.name == "grafana" else ""
            print(f"  {place.service.name.capitalize():<12} {place.url}{hint}")
    exporter = next(place for place in ready if place.service.name == "exporter")
    if engines.tell(exporter.url, "" if chosen.values["APC_TARGETS"] else url, partial(_explain, url)):
        probe = _probe(chosen.project.name)
        if probe:
            native.examine(_within(probe, ["doctor"]), os.environ)
    print("  Stop it with: make down")
    return FINE


def _explain(url: str, reason: str) -> str:
    answers_here = not reach.connect(LOOPBACK, reach.port(urlsplit(url)))
    finding = reach.explain(url, reason, answers_here)
    return f"{finding.code}: {finding.text}" if finding else ""


def doctor(args: argparse.Namespace) -> int:
    """Run the doctor where the probe runs, since what that reaches is what counts; else as the native stack does."""
    probe = None if native.names_engine() or not _has_docker() else _probe(settings.project(os.environ).name)
    if not probe:
        return native.doctor(args)
    print(f"  From within {probe.name}:", file=sys.stderr)
    return subprocess.run(_within(probe, cli.doctor_words(args)), check=False).returncode  # noqa: S603 - our own argv


def _probe(project: str) -> Container | None:
    running = (c for c in docker.containers(project) if c.state == "running")
    return next((c for c in running if c.service == "probe"), None)


def _within(probe: Container, words: list[str]) -> list[str]:
    return ["docker", "exec", probe.name, "/bin/sh", "/opt/image/with-secrets", "python3", "-m", "probes", *words]


def down(args: argparse.Namespace) -> int:
    """End the stack in Docker, and the native one; the data is kept."""
    project = settings.project(os.environ)
    if not _containers(project.name):
        return native.down(args)
    stack.down(project, os.environ)
    return native.down(args) if _native_runs() else FINE


def status(args: argparse.Namespace) -> int:
    """Show a row for each container, and one for each target; without any, what the native stack says."""
    found = _containers(settings.project(os.environ).name)
    if not found:
        return native.status(args)
    order = [service.name for service in SERVICES]
    found.sort(key=lambda container: order.index(container.service) if container.service in order else len(order))
    rows: list[tuple[str, ...]] = [("SERVICE", "STATE", "UPTIME", "RESTARTS", "URL")]
    rows += [(c.service, _state(c), str(c.uptime), str(c.restarts), _url(c)) for c in found]
    prometheus = next((_url(c) for c in found if c.service == "prometheus"), "")
    if args.json:
        programs = [{"name": c.service, "state": _state(c), "restarts": c.restarts, "url": _url(c)} for c in found]
        print(json.dumps([figures.data(programs, prometheus)], indent=1))
    else:
        print(table(rows), figures.text(prometheus, sys.stdout.encoding), sep="\n\n")
    return FINE if all(c.state == "running" and c.health != "unhealthy" for c in found) else FAULT


def logs(args: argparse.Namespace) -> int:
    """Run `docker compose logs`; without containers, the native one's."""
    project = settings.project(os.environ)
    if not _containers(project.name):
        return native.logs(args)
    argv = [
        "docker",
        "compose",
        *project.options,
        "logs",
        f"--tail={args.lines}",
        *(["--follow"] if args.follow else []),
    ]
    return subprocess.run([*argv, *args.program], cwd=ROOT, check=False).returncode  # noqa: S603 - the argv is our own


def clean(args: argparse.Namespace) -> int:
    """Delete the volumes and what was written for the containers; then what the native stack wrote."""
    project = settings.project(os.environ)
    has_docker = _has_docker()
    if has_docker and docker.containers(project.name):
        raise NativeError("the stack runs: `make down` first")
    volumes = docker.volumes(project.name) if has_docker else []
    if volumes:
        if not cli.agreed(args, f"Delete the volumes {', '.join(volumes)}, with Prometheus' and Grafana's data?"):
            return FAULT
        stack.down(project, os.environ, volumes=True)
    files.delete(run_folder(envfile.merged(os.environ)) / "docker")
    return native.clean(args)


def _native_runs() -> bool:
    return any(processes.members(run) for run in demo.folders(run_folder(envfile.merged(os.environ))))


def _has_docker() -> bool:
    try:
        docker.require()
    except NoDockerError:
        return False
    return True


def _containers(project: str) -> list[Container]:
    return docker.containers(project) if _has_docker() else []


def _state(container: Container) -> str:
    return f"{container.state} ({container.health})" if container.health else container.state


def _url(container: Container) -> str:
    service = next((service for service in SERVICES if service.name == container.service), None)
    return Placed(service, container.ports[0]).url if service and container.ports else ""
