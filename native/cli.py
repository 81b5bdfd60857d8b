"""What the command lines of both stacks share: how a command is run, declared and its settings listed."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from native.errors import NativeError, SettingsError

INTERRUPTED: Final = 130
Command = Callable[[argparse.Namespace], int]


def run(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Run a command; returns the exit code: 0 fine, 1 something does not run, 2 wrong settings, 3 could not run."""
    # A tick may be more than the locale has; and a line is to be seen when it is true.
    sys.stdout.reconfigure(errors="replace", line_buffering=True)  # type: ignore[union-attr]
    args = parser.parse_args(argv)
    name = parser.prog.rpartition(" ")[2]
    command: Command = args.command
    try:
        return command(args)
    except NativeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted; `make status` shows what runs, `make down` ends it", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def agreed(args: argparse.Namespace, question: str) -> bool:
    """Ask before data is deleted, unless --yes was said; raises SettingsError where nobody can answer."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise SettingsError("clean asks before it deletes data; where nobody can answer, say --yes")
    return input(f"  {question} [y/N] ").strip().lower() in {"y", "yes"}


def doctor_words(args: argparse.Namespace) -> list[str]:
    """Return the doctor's command line."""
    return ["doctor", *(["--json"] if args.json else []), *([f"--pause={args.pause}"] if args.pause else [])]


class Actions:
    """The commands of a parser; both stacks have these with the same options: doctor, status, logs, clean."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._actions = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(self, name: str, run: Command, purpose: str) -> argparse.ArgumentParser:
        """Declare a command."""
        action = self._actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        action.set_defaults(command=run)
        return action

    def add_doctor(self, doctor: Command) -> None:
        """Declare the doctor."""
        examined = self.add(
            "doctor",
            doctor,
            "say whether reuse works and why not, with the settings and from the place of the probe that runs; where "
            "none does, or VLLM_URL or APC_TARGETS is set for this call, from here; exit 1 if something is to be done",
        )
        examined.add_argument("--json", action="store_true", help="print JSON, one object a target")
        examined.add_argument("--pause", metavar="S", default="", help="seconds between two canary cycles [0]")

    def add_common(self, status: Command, logs: Command, clean: Command, *, deletes: str, examples: str) -> None:
        """Declare the three; `deletes` is what clean deletes, `examples` are names that logs takes."""
        shown = self.add(
            "status",
            status,
            "show what runs, and the targets' figures; exit 0 if all runs, 1 if something does not, 3 if nothing does",
        )
        shown.add_argument("--json", action="store_true", help="print JSON: a list of stacks with programs and targets")
        ends = self.add("logs", logs, "show the end of the logs")
        ends.add_argument("program", nargs="*", help=f"only these, e.g. {examples}")
        ends.add_argument("-n", "--lines", type=int, default=20, help="lines of each log [20]")
        ends.add_argument("-f", "--follow", action="store_true", help="go on showing what is added")
        cleaned = self.add("clean", clean, f"delete {deletes}, after asking")
        cleaned.add_argument("--yes", action="store_true", help="do not ask")
