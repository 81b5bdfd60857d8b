"""Command line of the dashboards."""

import argparse
import json
import sys
from pathlib import Path

from dashboards.lint import SCRAPE_SECONDS, Surroundings, lint, surroundings
from dashboards.names import UnknownNameError

FINE, FAULT_FOUND, COULD_NOT_RUN = 0, 1, 3


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code: 0 fine, 1 a fault was found, 2 the call is wrong, 3 could not run."""
    args = _parser().parse_args(argv)
    if args.command == "lint":
        around = surroundings(scrape_seconds=args.scrape_interval)
        return max(_lint(path, around) for path in args.files)
    try:
        from dashboards import build  # noqa: PLC0415  # names are looked up as queries are imported

        return _write(build.write()) if args.command == "build" else _check([*build.differences()])
    except (UnknownNameError, LookupError) as error:
        print(f"dashboards: {error}", file=sys.stderr)
        return FAULT_FOUND


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dashboards",
        description="Make the Grafana dashboards of dashboards/out from code.",
        epilog="exit codes: 0 fine, 1 a fault or a difference was found, 2 the call is wrong, 3 could not run",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="write dashboards/out/*.json")
    commands.add_parser("check", help="fail where they differ from what build would write")
    lints = commands.add_parser("lint", help="name the faults of any dashboard's JSON")
    lints.add_argument("files", nargs="+", type=Path, metavar="FILE")
    lints.add_argument(
        "--scrape-interval",
        type=float,
        default=SCRAPE_SECONDS,
        metavar="SECONDS",
        help="the slowest at which what it shows is scraped [%(default)g, which is Prometheus' own default]",
    )
    return parser


def _write(changed: list[Path]) -> int:
    for path in changed:
        print(f"{'wrote' if path.exists() else 'deleted'} {path.name}")
    print(f"{len(changed)} files changed")
    return FINE


def _check(differences: list[str]) -> int:
    if not differences:
        print("dashboards/out is what the code makes")
        return FINE
    print(*differences, sep="\n")
    print("dashboards/out differs from what the code makes: python -m dashboards build", file=sys.stderr)
    return FAULT_FOUND


def _lint(path: Path, around: Surroundings) -> int:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        dashboard = content.get("dashboard", content) if isinstance(content, dict) else None
        if not isinstance(dashboard, dict):
            print(f"{path}: is no dashboard", file=sys.stderr)
            return COULD_NOT_RUN
        faults = lint(dashboard, around)
    except (OSError, ValueError, RecursionError) as error:
        print(f"{path}: cannot be read: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    for fault in faults:
        print(f"{path}: {fault}".encode("utf-8", "backslashreplace").decode())  # JSON may hold half a character
    return FAULT_FOUND if faults else FINE


if __name__ == "__main__":
    sys.exit(main())
