"""Why an engine that answers on the machine does not answer a container, and what to do about it.

In a container `localhost` is the container itself. The machine is `host.docker.internal` there, an address at which
only those servers answer that listen on more than 127.0.0.1.
"""

import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from native.settings import LOOPBACK
from probes.verdict import Code

GATEWAY: Final = "host.docker.internal"
FILTERED: Final = "filtered"  # which the doctor cannot tell from a slow engine
SECONDS: Final = 2.0
_LOCAL: Final = frozenset({"localhost", "ip6-localhost", "0.0.0.0", "::1", "::"})  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason, by the doctor's name where it has one, and a sentence with the remedy."""

    code: str
    text: str


def is_local(url: str) -> bool:
    """Whether the address means the machine itself, and so in a container the container itself."""
    host = urlsplit(url).hostname or ""
    return host in _LOCAL or host.startswith("127.")


def port(parts: SplitResult) -> int:
    """Return the port of an address, the scheme's where it has none."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def from_container(url: str) -> str:
    """Return the address under which a container reaches the same server."""
    if not is_local(url):
        return url
    parts = urlsplit(url)
    ending = f":{parts.port}" if parts.port else ""
    return urlunsplit(parts._replace(netloc=f"{GATEWAY}{ending}"))


def explain(url: str, reason: str, answers_on_loopback: bool | None = None) -> Finding | None:
    """Explain why a container does not reach the address; None where it is the server's own trouble.

    `reason` is one of the exporter's: dns, refused, timeout ... `answers_on_loopback` is what a connection from the
    machine itself says; None where that was not tried.
    """
    parts = urlsplit(url)
    host, number = parts.hostname or "", port(parts)
    if reason == "dns":
        return Finding(
            Code.DNS,
            f"{host} is no name inside a container: those of /etc/hosts and .local are not known there. Use an IP "
            f"address or a full name; for this machine, {GATEWAY}",
        )
    if is_local(url):
        return Finding(
            Code.LOCALHOST_IN_CONTAINER,
            f"in a container {host} is the container itself: write {from_container(url)} for this machine",
        )
    if host != GATEWAY or reason not in {"refused", "timeout"}:
        return None
    if reason == "timeout":
        return Finding(
            FILTERED,
            f"this machine drops what containers send to port {number}, as a firewall does: allow Docker's networks, "
            f"e.g. ufw allow from 172.16.0.0/12 to any port {number} proto tcp",
        )
    if answers_on_loopback is False:
        return Finding(
            Code.STARTING_OR_DOWN,
            f"nothing listens on port {number} of this machine: is the engine started, or still loading?",
        )
    return Finding(
        Code.BOUND_TO_LOOPBACK,
        f"the engine {'listens' if answers_on_loopback else 'may listen'} on 127.0.0.1 only, where no container gets "
        f"to: start it with --host 0.0.0.0 and keep port {number} off other networks with a firewall, or join the "
        "engine's container to this stack's network",
    )


def connect(host: str, number: int) -> str:
    """Try to connect from here; returns the reason of a failure in the exporter's words, empty where it works."""
    try:
        socket.create_connection((host, number), timeout=SECONDS).close()
    except TimeoutError:
        return "timeout"
    except socket.gaierror:
        return "dns"
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "network"
    return ""


def foresee(url: str, gateway: str) -> Finding | None:
    """Say what a container will meet, as far as this machine's own connections tell; `gateway` is its side of it."""
    parts = urlsplit(url)
    if parts.hostname != GATEWAY or not gateway:
        return None
    reason = connect(gateway, port(parts))
    return explain(url, reason, answers_on_loopback=not connect(LOOPBACK, port(parts))) if reason else None
