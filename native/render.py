"""Settings and programs -> the text of every file that the stack is started with. Pure."""

import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from native.errors import SettingsError
from native.programs import Service
from native.settings import ROOT, seconds

FINGERPRINT: Final = "APC_FINGERPRINT"
SCRAPE_TIMEOUT_SECONDS: Final = 10
STOP_SECONDS: Final = 10
_HEADER: Final = "; Written by `python -m native up`; edits are lost at the next one.\n"
# In supervisor's format these begin a comment or end a value, and there is no escaping them.
_UNREADABLE: Final = re.compile(r"\n|\s[;#]")


def prometheus_config(text: str, interval: str) -> str:
    """Set the intervals of a prometheus.yml; with its own values the text is unchanged."""
    timeout = f"{min(seconds(interval), SCRAPE_TIMEOUT_SECONDS)}s"
    values = {"scrape_interval": interval, "evaluation_interval": interval, "scrape_timeout": timeout}
    for name, value in values.items():
        text = re.sub(rf"(?m)^(  {name}:) \S+", rf"\1 {value}", text)
    return text


def targets(services: Iterable[Service]) -> dict[str, str]:
    """Return the file of each Prometheus job: what it scrapes."""
    return {
        f"{service.program.job}.yml": f"- targets: ['{service.address}']\n"
        for service in services
        if service.program.job
    }


def urls(services: Iterable[Service]) -> str:
    """Return the pages that a person wants to see, by program, as JSON."""
    return json.dumps({service.name: service.url for service in services})


def supervisor_config(run: Path, socket: Path, services: Iterable[Service], fingerprints: Mapping[str, str]) -> str:
    """Return supervisord's configuration; raises SettingsError where the format cannot hold a path."""
    if "%" in str(run):  # supervisor expands the names of logs twice
        raise SettingsError(f"APC_RUN_DIR: {run} has a '%', which supervisor cannot read back; choose another folder")
    sections = [
        _section("unix_http_server", {"file": str(socket), "chmod": "0700"}),
        _section(
            "supervisord",
            {
                "logfile": str(run / "logs" / "supervisord.log"),
                "logfile_maxbytes": "1MB",
                "logfile_backups": "1",
                "pidfile": str(run / "supervisord.pid"),
                "childlogdir": str(run / "logs"),
            },
        ),
        _HANDLER,
        *(_program(run, service, fingerprints[service.name]) for service in services),
    ]
    return _HEADER + "\n".join(sections)


def supervisor_argv(config: Path) -> list[str]:
    """Return the command that starts supervisord in the background."""
    return [sys.executable, "-m", "supervisor.supervisord", "-c", str(config)]


_HANDLER: Final = """\
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""


def _program(run: Path, service: Service, fingerprint: str) -> str:
    environment = {**service.environment, FINGERPRINT: fingerprint}
    return _section(
        f"program:{service.name}",
        {
            "command": shlex.join(service.argv),
            "directory": str(ROOT),
            "environment": _environment(environment),
            "autostart": "false",  # `up` starts each once what it needs is healthy
            "autorestart": "true",
            "startsecs": "1",
            "startretries": "10",  # with growing pauses: a minute of trouble is no end
            "stopwaitsecs": str(STOP_SECONDS),
            "stopasgroup": "true",
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": str(run / "logs" / f"{service.name}.log"),
            "stdout_logfile_maxbytes": "10MB",
            "stdout_logfile_backups": "2",
        },
    )


def _environment(values: Mapping[str, str]) -> str:
    for name, value in values.items():
        if "'" in value or '"' in value:
            raise SettingsError(f"{name}: {value!r} has a quote, which supervisor cannot read back")
    return ",".join(f"{name}='{value}'" for name, value in values.items())


def _section(name: str, options: Mapping[str, str]) -> str:
    for value in options.values():
        if _UNREADABLE.search(value):
            raise SettingsError(
                f"{name}: {value!r} has a line break, ' ;' or ' #', which supervisor cannot read back; "
                "rename that folder or file"
            )
    return f"[{name}]\n" + "".join(f"{option}={value.replace('%', '%%')}\n" for option, value in options.items())
