"""Command line of the stack in Docker."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from host import commands
from host.services import SERVICES
from host.settings import SETTINGS
from native.errors import NativeError
from native.settings import SETTINGS as SHARED

INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 fine, 1 a service does not run, 2 wrong settings, 3 could not run."""
    sys.stdout.reconfigure(errors="replace", line_buffering=True)  # type: ignore[union-attr]
    args = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except NativeError as error:
        print(f"host: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("\nhost: interrupted; `make status` shows what runs, `make down` ends it", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return commands.FINE


def _parser() -> argparse.ArgumentParser:
    known = [(s.port.setting, str(s.port.default), f"{s.name}'s port on 127.0.0.1") for s in SERVICES if s.port]
    known += [(setting.name, setting.default, setting.meaning) for setting in (*SHARED, *SETTINGS)]
    width = max(len(name) for name, _, _ in known)
    lines = [f"  {name:<{width}}  {meaning}{f' [{default}]' if default else ''}" for name, default, meaning in known]
    parser = argparse.ArgumentParser(
        prog="python -m host",
        description="The stack in Docker; where there is no Docker, the one of python -m native.",
        epilog="settings, from the environment or .env, besides those of exporter and probe:\n"
        + "\n".join(lines)
        + "\n\nexit codes: 0 fine, 1 a service does not run, 2 the call or the settings are wrong, "
        "3 could not run or is not up\n\nexamples:\n"
        "  VLLM_URL=http://gpu-1:8000 python -m host up\n"
        "  COMPOSE_PROFILES=demo python -m host up       # a simulated engine and traffic\n"
        "  APC_WITHOUT=grafana python -m host up         # where there is one already\n"
        "  python -m host logs --follow exporter",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], purpose: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        action.set_defaults(command=run)
        return action

    add("up", commands.up, "check what is needed, start what does not run or changed, wait until all is healthy")
    add("down", commands.down, "end the stack, with or without Docker; the data is kept")
    status = add(
        "status",
        commands.status,
        "show what runs, and the targets' figures; exit 0 where all runs, 1 where something does not, 3 where nothing",
    )
    status.add_argument("--json", action="store_true", help="print JSON: a list of stacks with programs and targets")
    logs = add("logs", commands.logs, "show the end of the logs")
    logs.add_argument("program", nargs="*", help="only these services, e.g. exporter, prometheus")
    logs.add_argument("-n", "--lines", type=int, default=20, help="lines of each log [20]")
    logs.add_argument("-f", "--follow", action="store_true", help="go on showing what is added")
    clean = add("clean", commands.clean, "delete the volumes and logs, after asking; .env is kept")
    clean.add_argument("--yes", action="store_true", help="do not ask")
    return parser


if __name__ == "__main__":
    sys.exit(main())
