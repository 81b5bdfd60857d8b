"""The commands: each prints for people and returns its exit code, 0 where all is well."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from native import cli, demo, engines, envfile, figures, folder, grafana, processes, settings, stack, tools
from native.errors import NativeError
from native.programs import STACK, ports
from native.report import table
from native.settings import ROOT
from native.supervisor import RUNNING

FINE: Final = 0
FAULT: Final = 1
NOT_UP: Final = 3


def up(_args: argparse.Namespace) -> int:
    """Start the stack and print its pages."""
    chosen = settings.read(envfile.merged(os.environ), ports(STACK))
    services = stack.up(chosen, STACK)
    print()
    for service in services:
        if service.url:
            password = f" (user admin, password in {chosen.run}/grafana/{grafana.PASSWORD})"
            print(f"  {service.name.capitalize():<12} {service.url}{password if service.name == 'grafana' else ''}")
    exporter, probe = (next(service for service in services if service.name == name) for name in ("exporter", "probe"))
    if engines.tell(exporter.url, "" if chosen.values["APC_TARGETS"] else chosen.values["VLLM_URL"]):
        examine([sys.executable, "-m", "probes", "doctor"], {**chosen.environ, **probe.environment})
    print("  Stop it with: make down")
    return FINE


def examine(doctor: Sequence[str], environ: Mapping[str, str]) -> None:
    """Let the doctor say whether reuse works. What it finds is no fault of the start."""
    print("\n  What the doctor finds (again: make doctor):", flush=True)
    subprocess.run(doctor, cwd=ROOT, env=environ, check=False)  # noqa: S603 - the argv is our own
    print()


def doctor(args: argparse.Namespace) -> int:
    """Run the doctor as the stack's probe would; where none runs, or the call names an engine, with the settings."""
    environ = None if names_engine() else _probe_environ()
    argv = [sys.executable, "-m", "probes", *cli.doctor_words(args)]
    if environ is None:
        environ = envfile.merged(os.environ)
    return subprocess.run(argv, cwd=ROOT, env=environ, check=False).returncode  # noqa: S603 - the argv is our own


def names_engine() -> bool:
    """Whether the call itself says which engine is meant, whatever runs."""
    return any(os.environ.get(name, "").strip() for name in ("VLLM_URL", "APC_TARGETS"))


def _probe_environ() -> dict[str, str] | None:
    """Return what the probe that runs was started with, less the mark of the stack; None where none runs."""
    found = (program for run in _folders() for program, _ in stack.status(run))
    pid = next((program.pid for program in found if program.name == "probe" and program.pid), 0)
    environ = processes.environment(pid) if pid else {}
    return {name: value for name, value in environ.items() if name != processes.MARK} or None


def down(_args: argparse.Namespace) -> int:
    """End the stack and the demo."""
    ended = [stack.down(run) for run in reversed(_folders())]
    if not any(ended):
        print("  Nothing was running.")
    return FINE


def status(args: argparse.Namespace) -> int:
    """Show a row for each program, and one for each target."""
    states: list[str] = []
    stacks: list[dict[str, Any]] = []
    for run in _folders():
        found = stack.status(run)
        prometheus = next((url for program, url in found if program.name == "prometheus"), "")
        states += [p.state for p, _ in found]
        if args.json:
            programs = [{**asdict(program), "url": url} for program, url in found]
            stacks += [figures.data(programs, prometheus)] if found else []
            continue
        rows: list[tuple[str, ...]] = [("PROGRAM", "STATE", "PID", "UPTIME", "URL")]
        rows += [
            (p.name, p.state.lower(), str(p.pid or "-"), _duration(p.uptime_seconds) if p.pid else "-", url)
            for p, url in found
        ]
        if found:
            print(table(rows), figures.text(prometheus, sys.stdout.encoding), sep="\n\n")
        elif left := processes.members(run):
            print(f"  Left behind without a supervisor in {run}: {', '.join(map(str, left))}. `make down` ends them.")
    if args.json:
        print(json.dumps(stacks, indent=1))
    elif not states:
        print("  Not up. `make up` starts it.")
    if not states:
        return NOT_UP
    return FINE if set(states) == {RUNNING} else FAULT


def logs(args: argparse.Namespace) -> int:
    """Become `tail` on the logs."""
    found = [log for run in _folders() for log in sorted((run / "logs").glob("*.log"))]
    wanted = [log for log in found if not args.program or log.stem in args.program]
    if not wanted:
        known = ", ".join(dict.fromkeys(log.stem for log in found)) or "none; `make up` writes them"
        raise NativeError(f"no such log in {_folders()[0]}; there are: {known}")
    sys.stdout.flush()
    os.execvp("tail", ["tail", "-v", "-n", str(args.lines), *(["-F"] if args.follow else []), *map(str, wanted)])  # noqa: S606, S607


def run_demo(args: argparse.Namespace) -> int:
    """Start the demo and print what it shows."""
    told = demo.run(envfile.merged(os.environ), args.engine)
    print()
    for line in told:
        print(f"  {line}")
    print("  Stop it with: make down")
    return FINE


def fetch_tools(_args: argparse.Namespace) -> int:
    """Fetch what is missing."""
    for name, tool in tools.TOOLS.items():
        if tool.package:
            tools.ensure(name)
    return FINE


def clean(args: argparse.Namespace) -> int:
    """Delete what the stack wrote."""
    own, demos = _folders()
    if processes.members(own) or processes.members(demos):
        raise NativeError("the stack runs: `make down` first")
    if not own.is_dir():
        print("  Nothing to delete.")
        return FINE
    if not cli.agreed(args, f"Delete logs and Prometheus' data in {own}?"):
        return FAULT
    for run in (demos, own):
        folder.delete(run)
    print(f"  Deleted what the stack wrote in {own}.")
    return FINE


def _folders() -> tuple[Path, Path]:
    return demo.folders(settings.run_folder(envfile.merged(os.environ)))


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
