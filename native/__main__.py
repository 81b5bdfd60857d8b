"""Command line of the stack without Docker."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from native import commands
from native.errors import NativeError
from native.programs import ENGINES, STACK
from native.settings import SETTINGS

INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 fine, 1 a program does not run, 2 wrong settings, 3 could not run."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a tick may be more than the locale has
    args = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except NativeError as error:
        print(f"native: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("\nnative: interrupted; `make status` shows what runs, `make down` ends it", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return commands.FINE


def _parser() -> argparse.ArgumentParser:
    programs = (*STACK, ENGINES["simulated"])
    known = [(p.port.setting, str(p.port.default), f"{p.name}'s port") for p in programs if p.port]
    known += [(setting.name, setting.default, setting.meaning) for setting in SETTINGS]
    width = max(len(name) for name, _, _ in known)
    lines = [f"  {name:<{width}}  {meaning}{f' [{default}]' if default else ''}" for name, default, meaning in known]
    parser = argparse.ArgumentParser(
        prog="python -m native",
        description="The stack under supervisor, without Docker or root: exporter, probe, Prometheus, Alertmanager.",
        epilog="settings, from the environment, besides those of the exporter (python -m exporter --help):\n"
        + "\n".join(lines)
        + "\n\nexit codes: 0 fine, 1 a program does not run, 2 the call or the settings are wrong, "
        "3 could not run or is not up\n\nexamples:\n"
        "  VLLM_URL=http://gpu-1:8000 python -m native up\n"
        "  PROMETHEUS_PORT=9490 python -m native up      # where 9390 is taken\n"
        "  python -m native logs --follow exporter",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], purpose: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        action.set_defaults(command=run)
        return action

    add("up", commands.up, "start what does not run, restart what changed, wait until all is healthy")
    add("down", commands.down, "end the stack and the demo, and nothing else; the data is kept")
    status = add(
        "status",
        commands.status,
        "show what runs, and the targets' figures; exit 0 where all runs, 1 where something does not, 3 where nothing",
    )
    status.add_argument("--json", action="store_true", help="print JSON: a list of stacks with programs and targets")
    logs = add("logs", commands.logs, "show the end of the logs")
    logs.add_argument("program", nargs="*", help="only these programs, e.g. exporter, probe, prometheus, supervisord")
    logs.add_argument("-n", "--lines", type=int, default=20, help="lines of each log [20]")
    logs.add_argument("-f", "--follow", action="store_true", help="go on showing what is added")
    run_demo = add(
        "demo", commands.run_demo, "start an engine, traffic and the stack, and ask Prometheus for the hit rate"
    )
    run_demo.add_argument(
        "--engine", choices=ENGINES, default="simulated", help="vllm: a real one on the CPU [simulated]"
    )
    clean = add("clean", commands.clean, "delete the logs and Prometheus' data, after asking")
    clean.add_argument("--yes", action="store_true", help="do not ask")
    add(
        "tools",
        commands.fetch_tools,
        "fetch Prometheus and Alertmanager from Debian's packages where they are not on PATH",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
