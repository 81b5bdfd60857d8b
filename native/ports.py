"""Which ports are free, and what holds those that are not."""

import errno
import pwd
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from native import processes
from native.errors import SettingsError

_LISTEN: Final = "0A"
_TABLES: Final = (processes.PROC / "net" / "tcp", processes.PROC / "net" / "tcp6")


class Listener(NamedTuple):
    """A listening socket of the machine."""

    port: int
    uid: int
    inode: int


class Needs(Protocol):
    """What wants a port: the setting that moves it, and the address to listen on (port 0: none wanted)."""

    @property
    def setting(self) -> str: ...  # noqa: D102
    @property
    def host(self) -> str: ...  # noqa: D102
    @property
    def port(self) -> int: ...  # noqa: D102


def require_free(services: Iterable[Needs], own: Collection[int]) -> None:
    """Raise SettingsError naming each port that is taken, unless by one of our `own` processes."""
    faults = []
    for service in services:
        reason = _why_not(service.host, service.port) if service.port else None
        if reason == errno.EADDRINUSE:
            found = [entry for entry in _listeners() if entry.port == service.port]
            holders = {pid for entry in found for pid in _owners(entry.inode)}
            if not holders or holders - set(own):
                faults.append(taken(service.setting, service.port, _describe(holders, found)))
        elif reason:
            faults.append(f"{service.setting}: cannot listen on {service.host}:{service.port}: {_text(reason)}")
    if faults:
        raise SettingsError("\n".join(faults))


def taken(setting: str, port: int, holder: str) -> str:
    """Return the fault of a taken port: what holds it, and the setting that moves ours."""
    free = port + 100 if port + 100 <= 65_535 else port - 100  # noqa: PLR2004
    return f"{setting}: port {port} is taken by {holder}. Choose another: {setting}={free}"


def listeners(table: str) -> list[Listener]:
    """Return the listening sockets of a table in the format of /proc/net/tcp."""
    rows = (line.split() for line in table.splitlines()[1:])
    return [Listener(int(row[1].rpartition(":")[2], 16), int(row[7]), int(row[9])) for row in rows if row[3] == _LISTEN]


def _why_not(host: str, port: int) -> int | None:
    """Return the error number with which listening fails; None where it works."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    return None


def _text(number: int) -> str:
    return "the name is unknown" if number < 0 else OSError(number, "").strerror or errno.errorcode[number]


def _listeners() -> list[Listener]:
    return [entry for table in _TABLES if table.exists() for entry in listeners(table.read_text())]


def _owners(inode: int) -> list[int]:
    """Return the processes that hold a socket, of those that we may look into."""
    link = f"socket:[{inode}]"
    return [pid for pid in processes.pids() if link in _links(processes.PROC / str(pid) / "fd")]


def _links(folder: Path) -> set[str]:
    found = set()
    with suppress(OSError):
        for entry in folder.iterdir():
            with suppress(OSError):
                found.add(str(entry.readlink()))
    return found


def _describe(holders: Collection[int], found: list[Listener]) -> str:
    if not holders:
        return f"a process that cannot be seen from here ({_users(found)}), perhaps in a container"
    return ", ".join(_describe_one(pid) for pid in sorted(holders))


def _describe_one(pid: int) -> str:
    stack = processes.environment(pid).get(processes.MARK)
    whose = f", of the stack in {stack} (`make down` ends it)" if stack else ""
    return f"{processes.name(pid) or 'a process'} (pid {pid}){whose}"


def _users(found: list[Listener]) -> str:
    return " and ".join(sorted({_user(entry.uid) for entry in found})) or "user unknown"


def _user(uid: int) -> str:
    with suppress(KeyError):
        return f"user {pwd.getpwuid(uid).pw_name}"
    return f"uid {uid}"
