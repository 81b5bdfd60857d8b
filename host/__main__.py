"""Command line of the stack in Docker."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from exporter.checks import Setting, listing
from host import commands
from host.services import SERVICES
from host.settings import SETTINGS
from native import cli
from native.settings import SETTINGS as SHARED

WITHOUT_DOCKER: Final = {"APC_EXPORTER_HOST", "APC_PROBE_HOST"}  # a container's ports are published on 127.0.0.1


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 fine, 1 a service does not run, 2 wrong settings, 3 could not run."""
    return cli.run(_parser(), argv)


def _parser() -> argparse.ArgumentParser:
    ports = [Setting(s.port.setting, str(s.port.default), f"{s.name}'s port on 127.0.0.1") for s in SERVICES if s.port]
    parser = argparse.ArgumentParser(
        prog="python -m host",
        description="The stack in Docker; where there is no Docker, the one of python -m native.",
        epilog="settings, from the environment or .env, besides those of exporter and probe:\n"
        + listing([*ports, *(setting for setting in SHARED if setting.name not in WITHOUT_DOCKER), *SETTINGS])
        + "\n\nexit codes: 0 fine, 1 a service does not run or the doctor found a fault, "
        "2 the call or the settings are wrong, 3 could not run or is not up\n\nexamples:\n"
        "  VLLM_URL=http://gpu-1:8000 python -m host up\n"
        "  COMPOSE_PROFILES=demo python -m host up       # a simulated engine and traffic\n"
        "  APC_WITHOUT=grafana python -m host up         # where there is one already\n"
        "  python -m host doctor\n"
        "  python -m host logs --follow exporter",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = cli.Actions(parser)
    actions.add(
        "up", commands.up, "check what is needed, start what does not run or changed, wait until all is healthy"
    )
    actions.add("down", commands.down, "end the stack, with or without Docker; the data is kept")
    actions.add_doctor(commands.doctor)
    actions.add_common(
        commands.status,
        commands.logs,
        commands.clean,
        deletes="the volumes and logs, but not .env",
        examples="exporter, prometheus",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
