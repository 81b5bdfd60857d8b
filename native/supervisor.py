"""supervisord's XML-RPC over its unix socket: what runs, start, restart what changed, stop."""

import http.client
import socket
import xmlrpc.client  # the socket is in a folder that only its owner may enter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from native.errors import NativeError

RUNNING: Final = "RUNNING"
FAILED: Final = frozenset({"BACKOFF", "FATAL", "EXITED", "UNKNOWN"})  # after BACKOFF it is tried again
_TRIED: Final = frozenset({"RUNNING", "STARTING", "BACKOFF"})


@dataclass(frozen=True, slots=True)
class Status:
    """A program as supervisor sees it; pid 0 and uptime 0 where it does not run."""

    name: str
    state: str
    pid: int
    uptime_seconds: int
    error: str


class SupervisorError(NativeError):
    """It does not answer, or refuses."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, _host: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - the base class's type
        return _Connection(self._path)


class Supervisor:
    """A supervisord that may or may not run; each call raises SupervisorError where it does not answer."""

    def __init__(self, path: Path) -> None:
        self._proxy = xmlrpc.client.ServerProxy("http://localhost", transport=_Transport(path))

    def pid(self) -> int:
        """Return its process id; 0 where it does not answer."""
        try:
            return int(self._call("getPID"))
        except SupervisorError:
            return 0

    def status(self) -> list[Status]:
        """Return every program."""
        return [_status(info) for info in self._call("getAllProcessInfo")]

    def of(self, name: str) -> Status:
        """Return one program."""
        return _status(self._call("getProcessInfo", name))

    def start(self, name: str) -> bool:
        """Start a program unless it runs, and return whether it did; if it comes up is seen in its status."""
        state = self.of(name).state
        if state not in _TRIED:
            self._call("startProcess", name, False)
        return state == RUNNING

    def update(self) -> list[str]:
        """Read the configuration again, drop what is no longer in it or differs, and return the names dropped."""
        [[added, changed, removed]] = self._call("reloadConfig")
        for name in (*changed, *removed):
            self._call("stopProcessGroup", name)
            self._call("removeProcessGroup", name)
        for name in (*added, *changed):
            self._call("addProcessGroup", name)
        return [*changed, *removed]

    def shutdown(self) -> None:
        """Ask it to stop its programs and itself; returns before they are gone."""
        self._call("shutdown")

    def _call(self, method: str, *args: str | bool) -> Any:  # noqa: ANN401 - XML-RPC has no types
        try:
            return getattr(self._proxy.supervisor, method)(*args)
        except xmlrpc.client.Fault as fault:
            raise SupervisorError(f"supervisor refuses {method}: {fault.faultString}") from fault
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise SupervisorError(f"supervisord does not answer: {error}") from error


def _status(info: Mapping[str, Any]) -> Status:
    state = str(info["statename"])
    uptime = int(info["now"]) - int(info["start"]) if state == RUNNING else 0
    return Status(str(info["name"]), state, int(info["pid"]), max(0, uptime), str(info["spawnerr"]))
