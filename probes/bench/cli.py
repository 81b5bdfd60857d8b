"""The bench's command line."""

import argparse
import json
import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from exporter.checks import ConfigError
from probes.arguments import numbers, positive, seconds
from probes.bench import steps
from probes.bench.cells import tables
from probes.bench.page import page, server_lines
from probes.bench.report import Report, about, conclude, data
from probes.bench.run import Measured, Runner
from probes.bench.servers import Server
from probes.bench.steps import MODES, PROFILES, Arm, Off, Profile, Writer
from probes.canary import UNREACHABLE, takes_salt
from probes.client import Failed
from probes.config import CanaryTarget, load, only_server
from probes.report import console

FINE, FAULT_FOUND, WRONG_CALL, COULD_NOT_RUN = 0, 1, 2, 3
LISTS: Final = {
    "lengths": "tokens",
    "shares": "per cent",
    "clients": "clients at once",
    "prefixes": "prefixes asked in turn",
}


def main(argv: Sequence[str]) -> int:
    """Measure; returns 0 fine, 1 a warning was given, 2 wrong call or settings, 3 could not run."""
    args = _parser().parse_args(argv)
    try:
        profile = _profile(args)
        targets = {Arm.ON: _gateway(args) if args.gateway else _target(args, args.base_url, args.metrics_url)}
        if args.baseline_url:
            targets[Arm.OFF] = _target(args, args.baseline_url, args.baseline_metrics_url)
    except ConfigError as error:
        error.tell()
        return WRONG_CALL
    servers: dict[Arm, Server] = {}
    try:
        servers |= {arm: Server(target, profile.max_tokens, args.timeout) for arm, target in targets.items()}
        report = _bench(args, profile, servers, shlex.join(["python", "-m", "probes", "bench", *argv]))
    except (Failed, ValueError) as error:
        print(f"Cannot measure: {_told(error)}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        print("Stopped before anything was measured.", file=sys.stderr)
        return COULD_NOT_RUN
    finally:
        for server in servers.values():
            server.close()
    return _deliver(report, args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m probes bench",
        description="Measure what prefix caching saves: TTFT with and without reuse, with intervals.",
        epilog="examples:\n  python -m probes bench --base-url http://localhost:8000 --profile quick\n"
        "  python -m probes bench --base-url http://on:8000 --baseline-url http://off:8000 --html bench.html\n"
        "  GATEWAY_BASE_URL=... GATEWAY_API_KEY=... GATEWAY_MODEL=... python -m probes bench --gateway\n\n"
        "exit codes: 0 fine, 1 a warning was given, 2 the call or the settings are wrong, 3 could not run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--base-url", metavar="U", help="the server, with or without /v1 [VLLM_URL]")
    add("--baseline-url", metavar="U", help="a second server with prefix caching off, asked in turn with the first")
    add("--gateway", action="store_true", help="the gateway of GATEWAY_* or TAOTOKEN_* in place of the server")
    add("--model", metavar="M", help="the model id [VLLM_MODEL, else the first that it lists]")
    add("--metrics-url", metavar="U", help="the engine's metrics page [base URL/metrics]")
    add("--baseline-metrics-url", metavar="U", help="the same of the baseline")
    add("--profile", choices=PROFILES, default="article", help="quick: under a minute; full: all modes [article]")
    add("--modes", metavar="A,B", help=f"of {', '.join(MODES)} [the profile's]")
    add("--off", choices=[Off.SALT, Off.HEAD], help="without a baseline: a cache_salt, or a unique first word")
    add("--repetitions", type=positive, metavar="N", help="of each figure [the profile's; fewer than 6: no intervals]")
    add("--prefix-tokens", type=positive, metavar="N", help=f"of the five rounds' prompt [{steps.ARTICLE_TOKENS}]")
    for name, unit in LISTS.items():
        add(f"--{name}", type=numbers, metavar="A,B", help=f"of that sweep, in {unit} [the profile's]")
    add("--turns", type=positive, metavar="N", help="of the chat [the profile's]")
    add("--max-tokens", type=positive, metavar="N", help="to generate [32; quick: 16]")
    add("--timeout", type=seconds, metavar="S", default=120.0, help="seconds for one request [120]")
    add("--limit", type=seconds, metavar="S", help="seconds after which no request is begun [quick: 50]")
    add("--seed", metavar="TEXT", help="of the prompts; the same one again finds them cached [random]")
    add("--json", metavar="FILE", type=Path, help="write all figures and samples")
    add("--html", metavar="FILE", type=Path, help="write one page with the plots")
    return parser


def _profile(args: argparse.Namespace) -> Profile:
    """Return the profile with what the call changes of it. Raises ConfigError."""
    modes = tuple(args.modes.split(",")) if args.modes else None
    unknown = sorted(set(modes or ()) - set(MODES))
    if unknown:
        raise ConfigError([f"--modes: no mode {', '.join(unknown)}; there are {', '.join(MODES)}"])
    if any(not 0 <= share <= 100 for share in args.shares or ()):  # noqa: PLR2004
        raise ConfigError(["--shares: per cent, 0 to 100"])
    if any(number < 1 for number in (*(args.lengths or ()), *(args.clients or ()), *(args.prefixes or ()))):
        raise ConfigError(["--lengths, --clients, --prefixes: at least 1"])
    names = ("repetitions", "prefix_tokens", *LISTS, "turns", "limit", "max_tokens")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(args, name))}
    return replace(PROFILES[args.profile], **given | ({"modes": modes} if modes else {}))


def _gateway(args: argparse.Namespace) -> CanaryTarget:
    """Return the gateway of the environment. Raises ConfigError."""
    found = [target for target in load(os.environ).targets if target.engine is None]
    if args.base_url or not found:
        raise ConfigError(["--gateway: takes GATEWAY_BASE_URL, GATEWAY_API_KEY, GATEWAY_MODEL, and no --base-url"])
    return found[0]


def _target(args: argparse.Namespace, url: str | None, metrics_url: str | None) -> CanaryTarget:
    """Return the server to ask, its key from the environment. Raises ConfigError."""
    given = {"VLLM_MODEL": args.model, "VLLM_METRICS_URL": metrics_url}
    return load(only_server(os.environ, url or "") | {name: value for name, value in given.items() if value}).targets[0]


def _bench(args: argparse.Namespace, profile: Profile, servers: Mapping[Arm, Server], command: str) -> Report:
    """Learn the tokenizer, warm up, measure, conclude. Raises Failed, ValueError where it cannot begin."""
    began, clock = time.time(), time.monotonic()
    seed = args.seed or secrets.token_hex(6)
    for server in servers.values():
        try:
            server.clients[0].models()
        except Failed as error:
            if not server.target.endpoint.model or error.failure.error_class in UNREACHABLE:
                raise
    scrapes = {arm: server.scrape() for arm, server in servers.items()}
    off = Off.SERVER if Arm.OFF in servers else args.off or (Off.SALT if takes_salt(scrapes[Arm.ON]) else Off.HEAD)
    calibrations = [server.learn(seed) for server in servers.values()]
    writer = Writer(seed, calibrations[0])
    stages = steps.stages(profile, writer)
    stages.insert(0, steps.warm_up(profile.prefix_tokens, writer, tuple(servers)))
    runner = Runner(servers, off, seed, profile.limit)
    measured = _run(runner, stages)
    facts = {
        str(arm): about(server.target.endpoint.base_url, server.target.endpoint.model, scrapes[arm])
        for arm, server in servers.items()
    }
    return conclude(
        measured,
        facts,
        command=command,
        profile=args.profile,
        off=off,
        max_tokens=profile.max_tokens,
        learning_tokens=sum(tokens for _, tokens in calibrations[0].seen),
        began=began,
        seconds=time.monotonic() - clock,
    )


def _run(runner: Runner, stages: Sequence[steps.Stage]) -> Measured:
    out = console()
    total = sum(len(batch.asks) for stage in stages for batch in stage.batches)
    columns = TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, TimeRemainingColumn(), console=out, transient=True, refresh_per_second=2)
    with bar if out.is_terminal else nullcontext():
        task = bar.add_task("warm-up", total=total)
        return runner.run(stages, lambda name, done: bar.update(task, description=name, advance=done))


def _deliver(report: Report, args: argparse.Namespace) -> int:
    """Show the report and write the files; returns the exit code."""
    out = console()
    for line in server_lines(report):
        out.print(line, markup=False, highlight=False)
    for cells in tables(report):
        table = Table(title=cells.title, title_justify="left")
        for index, name in enumerate(cells.columns):
            table.add_column(name, justify="left" if index == 0 else "right", overflow="fold")
        for row in cells.rows:
            table.add_row(*row)
        out.print(table)
    for note in report.notes:
        out.print(Text.assemble(("! ", "bold yellow") if note.warning else ("· ", "dim"), note.text))
    out.print(f"{report.requests} requests in {report.seconds:g} s; medians, 95 % bootstrap intervals", style="dim")
    written = {args.json: json.dumps(data(report), indent=1) + "\n" if args.json else ""}
    written |= {args.html: page(report)} if args.html else {}
    for path, text in written.items():
        if path:
            try:
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                print(f"Cannot write {path}: {error.strerror}", file=sys.stderr)
                return COULD_NOT_RUN
    if not any(row.ttft for row in report.rows):
        return COULD_NOT_RUN
    return FAULT_FOUND if report.found_fault else FINE


def _told(error: Exception) -> str:
    return f"{error.failure.message}; {error.failure.remedy}" if isinstance(error, Failed) else str(error)
