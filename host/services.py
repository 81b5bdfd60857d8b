"""The services of compose.yaml as the commands know them: where each answers on this machine."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from native.programs import ALERTMANAGER_PORT, DEMO_PORT, EXPORTER_PORT, GRAFANA_PORT, PROBE_PORT, PROMETHEUS_PORT
from native.settings import LOOPBACK, Port

PROJECT: Final = "apc-observability"
ENGINE_PORT: Final = Port("ENGINE_PORT", 9000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service; the stack is of use without an `optional` one, and nobody waits for a `slow` one."""

    name: str
    port: Port | None = None
    health: str = ""  # the path that answers 200; without one, running is healthy
    page: str = ""  # the path that a person wants to see
    image: str = "APC_IMAGE"  # the setting that names its image
    profile: str = ""
    optional: bool = False
    slow: bool = False
    start_seconds: float = 60.0


SERVICES: Final = (
    Service(name="demo-engine", port=DEMO_PORT, health="/health", page="/v1", profile="demo"),
    Service(name="demo-traffic", profile="demo"),
    Service(
        name="vllm",
        port=ENGINE_PORT,
        health="/health",
        page="/v1",
        image="VLLM_IMAGE",
        profile="engine",
        slow=True,
    ),
    Service(name="exporter", port=EXPORTER_PORT, health="/-/healthy", page="/metrics"),
    Service(name="probe", port=PROBE_PORT, health="/-/healthy", page="/metrics", optional=True),
    Service(
        name="prometheus",
        port=PROMETHEUS_PORT,
        health="/-/ready",
        page="/",
        image="PROMETHEUS_IMAGE",
        start_seconds=300.0,  # it reads its log of the last hours again first
    ),
    Service(
        name="alertmanager",
        port=ALERTMANAGER_PORT,
        health="/-/ready",
        page="/",
        image="ALERTMANAGER_IMAGE",
        optional=True,
    ),
    Service(
        name="grafana",
        port=GRAFANA_PORT,
        health="/api/health",
        page="/",
        image="GRAFANA_IMAGE",
        optional=True,
        start_seconds=120.0,
    ),
)
PROFILES: Final = tuple(sorted({service.profile for service in SERVICES if service.profile}))
OPTIONAL: Final = tuple(service.name for service in SERVICES if service.optional)


@dataclass(frozen=True, slots=True)
class Placed:
    """A service and the port that it is published on; port 0: it has none."""

    service: Service
    port: int
    host: str = LOOPBACK

    @property
    def setting(self) -> str:
        """The name of the setting that moves its port."""
        return self.service.port.setting if self.service.port else ""

    @property
    def health_url(self) -> str:
        """The page that answers 200 when it is healthy; empty where it has none."""
        return self._at(self.service.health)

    @property
    def url(self) -> str:
        """The page that a person wants to see; empty where it has none."""
        return self._at(self.service.page)

    def _at(self, path: str) -> str:
        return f"http://{self.host}:{self.port}{path}" if path and self.port else ""


def chosen(profiles: Collection[str], without: Collection[str]) -> list[Service]:
    """Return the services that run with these profiles, less those left out."""
    return [s for s in SERVICES if s.name not in without and (not s.profile or s.profile in profiles)]
