"""Start, watch and end a stack."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from exporter.checks import ConfigError
from native import folder, grafana, ports, processes, render, tools, web
from native.errors import NativeError, SettingsError
from native.programs import Program, Service, resolve
from native.report import Step, step
from native.settings import ROOT, Settings, passed_on
from native.supervisor import FAILED, RUNNING, Status, Supervisor, SupervisorError
from prometheus import receivers

SOURCES: Final = ROOT / "prometheus"
POLL_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 15.0
LOG_LINES: Final = 10


def up(settings: Settings, programs: Sequence[Program]) -> list[Service]:
    """Start what does not run, restart what changed, and wait until all is healthy.

    Raises SettingsError before anything is started, NativeError where a required program does not get healthy.
    """
    run = settings.run
    folder.prepare(run)
    if folder.socket(run).parent != run:
        print(f"  {run} is too long a path for a socket: supervisor's is {folder.socket(run)}")
    with folder.locked(run):
        services = _services(settings, programs)
        ports.require_free(services, processes.members(run))
        _write_prometheus(settings, services)
        _write_alertmanager(settings, services)
        if any(service.name == "grafana" for service in services):
            grafana.write(settings.run / "grafana")
        for service in services:
            _check(service, settings.environ)
        _write_supervisor(run, services)
        supervisor = Supervisor(folder.socket(run))
        _supervise(supervisor, settings)
        return [service for service in services if _started(supervisor, service, run)]


def down(run: Path) -> list[str]:
    """End the stack's processes, all of them and no other; returns the names of those that ran."""
    if not run.is_dir():
        return []
    with folder.locked(run):
        left = processes.members(run)
        names = [program.name for program, _ in status(run) if program.pid] or [processes.name(pid) for pid in left]
        if left:
            with step(f"stop {', '.join(names)}"):
                _end(run)
        for path in (folder.socket(run), folder.urls(run), run / "supervisord.pid"):
            path.unlink(missing_ok=True)
    return names


def status(run: Path) -> list[tuple[Status, str]]:
    """Return every program and its URL; empty where no supervisord answers."""
    try:
        found = Supervisor(folder.socket(run)).status()
        urls: Mapping[str, str] = json.loads(folder.urls(run).read_text(encoding="utf-8"))
    except (SupervisorError, OSError, ValueError):
        return []
    order = list(urls)
    found.sort(key=lambda program: order.index(program.name) if program.name in order else len(order))
    return [(program, urls.get(program.name, "")) for program in found]


def _services(settings: Settings, programs: Sequence[Program]) -> list[Service]:
    """Fill in the programs; one that is not required is left out where its tool is not to be had."""
    found: dict[str, tools.Argv] = {}
    services = []
    for program in programs:
        try:
            found |= tools.ensure(program.tool) if program.tool else {}
        except NativeError as error:
            _forgive(program, error)
        else:
            services.append(resolve(program, settings, found))
    return services


def _forgive(program: Program, error: NativeError) -> None:
    """Go on without a program, unless it is required: then raise."""
    if program.required:
        raise error
    print(f"    {error}\n    The rest works without {program.name}.")


def _end(run: Path) -> None:
    try:
        Supervisor(folder.socket(run)).shutdown()
        if processes.await_gone(run, render.STOP_SECONDS + 5.0):
            return
    except SupervisorError:
        pass  # it was killed, or hangs: its programs are ended without it
    processes.end(run, render.STOP_SECONDS)


def _write_prometheus(settings: Settings, services: Iterable[Service]) -> None:
    home = settings.run / "prometheus"
    source = (SOURCES / "prometheus.yml").read_text(encoding="utf-8")
    text = render.prometheus_config(source, settings.values["APC_SCRAPE_INTERVAL"])
    (home / "prometheus.yml").write_text(text, encoding="utf-8")
    shutil.rmtree(home / "rules", ignore_errors=True)
    if (SOURCES / "rules").is_dir():
        shutil.copytree(SOURCES / "rules", home / "rules")
    targets = render.targets(services)
    for old in (home / "targets").iterdir():
        if old.name not in targets:
            old.unlink()
    for name, text in targets.items():
        (home / "targets" / name).write_text(text, encoding="utf-8")


def _write_alertmanager(settings: Settings, services: Iterable[Service]) -> None:
    """Write its configuration, which may hold a webhook's address, for its owner alone."""
    for service in services:
        if service.name == "alertmanager":
            source = (SOURCES / "alertmanager.yml").read_text(encoding="utf-8")
            version = tuple(int(part) for part in re.findall(r"\d+", tools.version(service.argv))[:2])
            try:
                text = receivers.render(source, {**settings.environ, **settings.values}, version=version)
            except ConfigError as error:
                raise SettingsError(str(error)) from error
            path = settings.run / "alertmanager" / "alertmanager.yml"
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")


def _write_supervisor(run: Path, services: Sequence[Service]) -> None:
    folder.urls(run).write_text(render.urls(services), encoding="utf-8")
    fingerprints = {service.name: folder.fingerprint(service.reads) for service in services}
    text = render.supervisor_config(run, folder.socket(run), services, fingerprints)
    folder.config(run).write_text(text, encoding="utf-8")


def _check(service: Service, environ: Mapping[str, str]) -> None:
    """Let the program say what is wrong with its settings, before anything is started."""
    if not service.check:
        return
    environment = {**environ, **service.environment}
    run = subprocess.run(  # noqa: S603 - the argv is our own
        service.check, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise SettingsError(f"{service.name} cannot be started.\n{(run.stderr + run.stdout).strip()}")


def _supervise(supervisor: Supervisor, settings: Settings) -> None:
    """Have a supervisord with the configuration just written, and with this environment."""
    run = settings.run
    pid = supervisor.pid()
    if pid:
        changed = _changed(processes.environment(pid), settings)
        if not changed:
            for name in supervisor.update():
                print(f"  ↻ {name}: its settings changed")
            return
        print(f"  ↻ everything: {', '.join(changed)} changed")
    if processes.members(run):
        with step("stop what runs" if pid else "end what an earlier supervisord left behind"):
            _end(run)
    environment = {**settings.environ, processes.MARK: str(run)}
    argv = render.supervisor_argv(folder.config(run))
    started = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    deadline = time.monotonic() + ANSWER_SECONDS
    while started.returncode or not supervisor.pid():
        if started.returncode or time.monotonic() > deadline:
            said = (started.stderr + started.stdout).strip() or _last(folder.log(run, "supervisord"))
            raise NativeError(f"supervisord does not start:\n{said}")
        time.sleep(POLL_SECONDS)


def _changed(before: Mapping[str, str], settings: Settings) -> list[str]:
    """Return the names, never the values, of what programs inherit and now differs."""
    old, new = (passed_on(environ, (*settings.values, processes.MARK)) for environ in (before, settings.environ))
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _started(supervisor: Supervisor, service: Service, run: Path) -> bool:
    try:
        with step(f"start {service.name}") as running:
            ran = supervisor.start(service.name)
            _await_healthy(supervisor, service, running, run)
            running.title = f"{service.name} is healthy{' and ran already' if ran else ''}"
    except NativeError as error:
        _forgive(service.program, error)
        return False
    return True


def _await_healthy(supervisor: Supervisor, service: Service, running: Step, run: Path) -> None:
    deadline = time.monotonic() + service.program.start_seconds
    while True:
        found = supervisor.of(service.name)
        if found.state == RUNNING and (not service.health_url or web.is_healthy(service.health_url)):
            return
        log = folder.log(run, service.name)
        if found.state in FAILED:
            raise NativeError(f"{service.name} ends by itself: {found.error}; the end of {log}:\n{_last(log)}")
        if time.monotonic() > deadline:
            waited = f"{service.program.start_seconds:.0f} s"
            raise NativeError(f"{service.name} is not healthy after {waited}; the end of {log}:\n{_last(log)}")
        running.tick(f"{service.health_url} does not answer yet" if found.state == RUNNING else found.state.lower())
        time.sleep(POLL_SECONDS)


def _last(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "    (there is none)"
    return "\n".join(f"    {line}" for line in lines[-LOG_LINES:])
