"""Command line of the probe."""

import argparse
import json
import logging
import os
import sys
from collections import deque
from collections.abc import Iterable

from exporter.checks import ConfigError, listing
from exporter.server import address, application, cannot_listen, run_until_stopped, serve
from probes import bench, report
from probes.arguments import seconds
from probes.canary import Canary, Cycle
from probes.config import SETTINGS, CanaryTarget, Settings, load, only_server
from probes.curve import Curve
from probes.doctor import CYCLES, InputError, Report, examine, from_files, read_log
from probes.evidence import of_cycles
from probes.judge import judge
from probes.metrics import Metrics
from probes.schedule import Job, Schedule
from probes.verdict import Severity

FINE, FAULT_FOUND, WRONG_SETTINGS, COULD_NOT_RUN = 0, 1, 2, 3
log = logging.getLogger("probes")


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code: 0 fine, 1 a fault was found, 2 wrong call or settings, 3 could not run."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["bench"]:
        return bench.main(words[1:])
    args = _parser().parse_args(words)
    level = logging.ERROR if args.command else logging.INFO  # a person reads the answer, not the log
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for noisy in ("apscheduler", "httpx2"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        if args.command == "doctor" and _offline(args):
            return _doctor_offline(args)
        given = _given(args)
        settings = load(only_server(os.environ, given.pop("VLLM_URL", "")) | given)
        if args.command == "check":
            return _check(settings)
        if args.command == "once":
            return _once(_asked(settings, args), as_json=args.json)
        return _doctor(settings, args) if args.command == "doctor" else _serve(settings)
    except ConfigError as error:
        error.tell()
    except InputError as error:
        print(error, file=sys.stderr)
    return WRONG_SETTINGS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m probes",
        description="Send canary requests that share a prefix, and tell whether the engine reused it.",
        epilog="settings, from the environment:\n"
        + listing(SETTINGS)
        + "\n\nThe engines' own settings: python -m exporter --help\n\n"
        "exit codes: 0 fine, 1 a fault was found, 2 the call or the settings are wrong, 3 could not run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    title = "commands; without one it serves /metrics and runs the schedule"
    commands = parser.add_subparsers(dest="command", title=title)
    once = commands.add_parser("once", help="one cycle, now; a table, or a JSON object")
    commands.add_parser("check", help="check the settings, name every fault, and exit")
    commands.add_parser("bench", help="measure what reuse is worth on this server", add_help=False)
    doctor = commands.add_parser(
        "doctor",
        help="from the settings to a verdict, step by step; or a verdict from saved files",
        description="Without files it sends three canary cycles to the server and judges. With files it sends nothing.",
        epilog="examples:\n  python -m probes doctor --base-url http://localhost:8000\n"
        "  python -m probes doctor --before A.prom --after B.prom --interval 60 --log vllm.log\n"
        "  python -m probes doctor --prompt monday.txt --prompt tuesday.txt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for command in (once, doctor):
        command.add_argument("--base-url", metavar="U", help="the server, with or without /v1 [VLLM_URL]")
        command.add_argument("--model", metavar="M", help="the model id [VLLM_MODEL, else the first that it lists]")
        command.add_argument("--metrics-url", metavar="U", help="the engine's metrics page [base URL/metrics]")
        command.add_argument("--json", action="store_true", help="print JSON, one object a target")
    doctor.add_argument("--before", metavar="A.prom", help="a saved /metrics body")
    doctor.add_argument("--after", metavar="B.prom", help="a later one of the same engine")
    doctor.add_argument("--interval", metavar="S", type=seconds, help="the seconds between the two, for rates")
    doctor.add_argument("--canary", metavar="R.jsonl", help="saved canary results: once --json, or rows as JSON or CSV")
    doctor.add_argument(
        "--log",
        metavar="vllm.log",
        help="the server's log; a file as those above, but with --base-url beside a live server",
    )
    doctor.add_argument(
        "--pause",
        metavar="S",
        type=seconds,
        default=0.0,
        help="seconds between two canary cycles, as long as a prefix should outlive other traffic [0]",
    )
    doctor.add_argument(
        "--prompt",
        metavar="FILE",
        action="append",
        default=[],
        help="twice: two prompts that should share their beginning",
    )
    return parser


def _given(args: argparse.Namespace) -> dict[str, str]:
    """Return what the call says in place of the environment."""
    given = {"VLLM_URL": "base_url", "VLLM_MODEL": "model", "VLLM_METRICS_URL": "metrics_url"}
    return {name: value for name, option in given.items() if (value := getattr(args, option, None))}


def _check(settings: Settings) -> int:
    print(f"The settings are fine. Listening on {settings.host}:{settings.port}.")
    for target in settings.targets:
        key = " with a key" if target.endpoint.api_key else ""
        print(f"  {target.name}: {target.endpoint.base_url}{key}, every {target.interval:g} s")
    return FINE


def _once(targets: Iterable[CanaryTarget], *, as_json: bool) -> int:
    worst = FINE
    for target in targets:
        canary = Canary(target)
        cycle = canary.run()
        canary.close()
        verdicts = judge(of_cycles([cycle]))
        if cycle.result != "ok" or any(verdict.severity <= Severity.WARNING for verdict in verdicts):
            worst = FAULT_FOUND
        if as_json:
            print(json.dumps(report.cycle_data(cycle, verdicts), indent=1))
            continue
        out = report.console()
        if cycle.sent:
            out.print(report.cycle_table(cycle))
        if cycle.note:
            out.print(f"  not sent: {cycle.note}", markup=False)
        for line in report.verdict_lines(verdicts):
            out.print(line)
    return worst


def _doctor(settings: Settings, args: argparse.Namespace) -> int:
    facts = read_log(args.log) if args.log else None
    out = report.console()
    found_fault = False
    for target in _asked(settings, args):
        if not args.json:
            out.print(f"{target.name}: {target.endpoint.base_url}", markup=False)
        silent = args.json
        seen = examine(
            target,
            lambda *step, silent=silent: None if silent else out.print(report.step_line(*step)),
            facts,
            args.pause,
        )
        found_fault |= seen.found_fault
        _show(seen, as_json=args.json)
    return FAULT_FOUND if found_fault else FINE


def _asked(settings: Settings, args: argparse.Namespace) -> tuple[CanaryTarget, ...]:
    """Return the targets of the settings; the one that the call names, if it names one."""
    return settings.targets[:1] if args.base_url else settings.targets


def _offline(args: argparse.Namespace) -> bool:
    files = (args.before, args.after, args.canary, *args.prompt)
    return any(files) or bool(args.log and not args.base_url)


def _doctor_offline(args: argparse.Namespace) -> int:
    if args.prompt and len(args.prompt) != 2:  # noqa: PLR2004
        raise InputError("--prompt: give it twice, for two prompts")
    seen = from_files(vars(args))
    _show(seen, as_json=args.json)
    return FAULT_FOUND if seen.found_fault else FINE


def _show(seen: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.report_data(seen), indent=1))
        return
    out = report.console()
    for line in (*report.note_lines(seen), *report.verdict_lines(seen.verdicts)):
        out.print(line)


def _serve(settings: Settings) -> int:
    metrics = Metrics(settings.targets)
    canaries = [Canary(target, curve=_curve(target)) for target in settings.targets]
    try:
        server = serve(settings.host, settings.port, application(lambda _: metrics.registry.collect(), "canary probe"))
    except OSError as error:
        print(cannot_listen(error, settings.host, settings.port, "APC_PROBE", 9492), file=sys.stderr)
        return COULD_NOT_RUN
    schedule = Schedule(tuple(_job(canary, metrics) for canary in canaries), metrics.count)
    schedule.start()
    names = ", ".join(canary.target.name for canary in canaries)
    where = address(settings.host, server.server_port)
    log.info("serving http://%s/metrics; canaries for %s", where, names)
    run_until_stopped(server)
    schedule.stop()
    for canary in canaries:
        canary.close()
    return FINE


def _curve(target: CanaryTarget) -> Curve | None:
    return Curve(target.curve_interval, target.curve_tokens) if target.curve_interval else None


def _job(canary: Canary, metrics: Metrics) -> Job:
    """Run a cycle, export it, and judge it in the light of the ones before."""
    last: deque[Cycle] = deque(maxlen=CYCLES)

    def run() -> None:
        cycle = canary.run()
        if canary.closed:  # it was cut short, which says nothing of the target
            return
        last.append(cycle)
        metrics.take(cycle)
        verdicts = judge(of_cycles(last))
        metrics.show(cycle.target, [verdict.code for verdict in verdicts])
        if cycle.failure:
            log.warning("target %s: %s: %s", cycle.target, cycle.failure.error_class, cycle.failure.message)
        if cycle.note:
            log.warning("target %s: %s", cycle.target, cycle.note)
        if cycle.sweep:
            log.info("target %s: sweep of the curve: %s %s", cycle.target, cycle.sweep.result, cycle.sweep.note)
        log.info("target %s: %s: %s", cycle.target, verdicts[0].code, verdicts[0].sentence)

    return Job(canary.target.name, canary.target.interval, run)


if __name__ == "__main__":
    sys.exit(main())
