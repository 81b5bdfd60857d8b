"""Whether the stack's ports are free, and what holds those that are not: another container, or a process."""

from collections.abc import Iterable

from host.docker import Container
from host.services import Placed
from native import ports
from native.errors import SettingsError


def require_free(placed: Iterable[Placed], running: Iterable[Container], project: str) -> None:
    """Raise SettingsError naming each port that is taken, unless by the stack itself."""
    holders = {port: container for container in running for port in container.ports}
    faults = []
    for place in placed:
        holder = holders.get(place.port)
        if holder and holder.project != project:
            faults.append(ports.taken(place.setting, place.port, f"the container {holder.name}"))
        elif not holder:
            try:
                ports.require_free([place], ())
            except SettingsError as error:
                faults.append(str(error))
    if faults:
        raise SettingsError("\n".join(faults))
