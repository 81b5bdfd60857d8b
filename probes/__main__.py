"""Command line of the probe."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterable

from rich.console import Console

from exporter.checks import ConfigError, Setting
from exporter.server import application, run_until_stopped, serve
from probes.canary import Canary, Cycle
from probes.config import SETTINGS, Settings, load
from probes.metrics import Metrics
from probes.report import as_json, as_table
from probes.schedule import Job, Schedule

FINE, FAULT_FOUND, WRONG_SETTINGS, COULD_NOT_RUN = 0, 1, 2, 3
log = logging.getLogger("probes")


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code: 0 fine, 1 a fault was found, 2 wrong call or settings, 3 could not run."""
    args = _parser().parse_args(argv)
    serving = args.command is None
    level = logging.INFO if serving else logging.ERROR  # a person reads the answer, not the log
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for noisy in ("apscheduler", "httpx2"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        settings = load(os.environ | _given(args))
    except ConfigError as error:
        print("The settings are wrong:", *(f"  {fault}" for fault in error.faults), sep="\n", file=sys.stderr)
        return WRONG_SETTINGS
    return _once(settings, as_text=not args.json) if args.command == "once" else _serve(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m probes",
        description="Send canary requests that share a prefix, and tell whether the engine reused it.",
        epilog=_settings_help(SETTINGS) + "\n\nThe engines' own settings: python -m exporter --help\n\n"
        "exit codes: 0 fine, 1 a fault was found, 2 the call or the settings are wrong, 3 could not run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        dest="command", title="commands; without one it serves /metrics and runs the schedule"
    )
    once = commands.add_parser("once", help="one cycle, now; a table, or a JSON object")
    once.add_argument("--base-url", metavar="U", help="the server, with or without /v1 [VLLM_URL]")
    once.add_argument("--model", metavar="M", help="the model id [VLLM_MODEL, else the first that it lists]")
    once.add_argument("--metrics-url", metavar="U", help="the engine's metrics page [base URL/metrics]")
    once.add_argument("--json", action="store_true", help="print one JSON object per target")
    return parser


def _settings_help(settings: Iterable[Setting]) -> str:
    width = max(len(setting.name) for setting in settings)
    lines = [f"  {s.name:<{width}}  {s.meaning}{f' [{s.default}]' if s.default else ''}" for s in settings]
    return "settings, from the environment:\n" + "\n".join(lines)


def _given(args: argparse.Namespace) -> dict[str, str]:
    """Return what the call says in place of the environment."""
    given = {"VLLM_URL": "base_url", "VLLM_MODEL": "model", "VLLM_METRICS_URL": "metrics_url"}
    return {name: value for name, option in given.items() if (value := getattr(args, option, None))}


def _once(settings: Settings, *, as_text: bool) -> int:
    cycles = []
    for target in settings.targets:
        canary = Canary(target)
        cycles.append(canary.run())
        canary.close()
    for cycle in cycles:
        if as_text:
            _show(cycle)
        else:
            print(json.dumps(as_json(cycle), indent=1))
    return FINE if all(cycle.result == "ok" for cycle in cycles) else FAULT_FOUND


def _show(cycle: Cycle) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    if cycle.sent:
        console.print(as_table(cycle))
    if cycle.failure:
        console.print(f"{cycle.failure.error_class}: {cycle.failure.message}", markup=False)
        console.print(f"What to do: {cycle.failure.remedy}", markup=False)


def _serve(settings: Settings) -> int:
    metrics = Metrics(settings.targets)
    canaries = [Canary(target) for target in settings.targets]
    try:
        server = serve(settings.host, settings.port, application(lambda _: metrics.registry.collect(), "canary probe"))
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        print(
            f"APC_PROBE_PORT: cannot listen on {where}: {error.strerror}. Move it: APC_PROBE_PORT=9492", file=sys.stderr
        )
        return COULD_NOT_RUN
    jobs = tuple(Job(c.target.name, c.target.interval, lambda c=c: _run(c, metrics)) for c in canaries)  # type: ignore[misc]
    schedule = Schedule(jobs, metrics.count)
    schedule.start()
    log.info(
        "serving http://%s:%d/metrics; canaries for %s",
        settings.host,
        server.server_port,
        ", ".join(j.name for j in jobs),
    )
    run_until_stopped(server)
    schedule.stop()
    for canary in canaries:
        canary.close()
    return FINE


def _run(canary: Canary, metrics: Metrics) -> None:
    cycle = canary.run()
    metrics.take(cycle)
    if cycle.failure:
        log.warning("target %s: %s: %s", cycle.target, cycle.failure.error_class, cycle.failure.message)


if __name__ == "__main__":
    sys.exit(main())
