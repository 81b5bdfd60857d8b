"""Command line of the stack without Docker."""

import argparse
import sys
from collections.abc import Sequence

from exporter.checks import Setting, listing
from native import cli, commands
from native.programs import ENGINES, STACK
from native.settings import SETTINGS


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 fine, 1 a program does not run, 2 wrong settings, 3 could not run."""
    return cli.run(_parser(), argv)


def _parser() -> argparse.ArgumentParser:
    programs = (*STACK, ENGINES["simulated"])
    ports = [Setting(p.port.setting, str(p.port.default), f"{p.name}'s port") for p in programs if p.port]
    parser = argparse.ArgumentParser(
        prog="python -m native",
        description="The stack under supervisor, without Docker or root: exporter, probe, Prometheus, Alertmanager.",
        epilog="settings, from the environment or .env, besides those of exporter and probe:\n"
        + listing([*ports, *SETTINGS])
        + "\n\nexit codes: 0 fine, 1 a program does not run or the doctor found a fault, "
        "2 the call or the settings are wrong, 3 could not run or is not up\n\nexamples:\n"
        "  VLLM_URL=http://gpu-1:8000 python -m native up\n"
        "  PROMETHEUS_PORT=9490 python -m native up      # where 9390 is taken\n"
        "  python -m native logs --follow exporter",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = cli.Actions(parser)
    actions.add("up", commands.up, "start what does not run, restart what changed, wait until all is healthy")
    actions.add("down", commands.down, "end the stack and the demo, and nothing else; the data is kept")
    actions.add_doctor(commands.doctor)
    actions.add_common(
        commands.status,
        commands.logs,
        commands.clean,
        deletes="the logs and Prometheus' data",
        examples="exporter, probe, prometheus, supervisord",
    )
    demo = actions.add(
        "demo", commands.run_demo, "start an engine, traffic and the stack, and ask Prometheus for the hit rate"
    )
    demo.add_argument("--engine", choices=ENGINES, default="simulated", help="vllm: a real one on the CPU [simulated]")
    actions.add(
        "tools", commands.fetch_tools, "fetch Prometheus and Alertmanager from Debian's packages where they are missing"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
