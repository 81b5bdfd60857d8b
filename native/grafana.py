"""What Grafana is started with, where the machine has one: compose.yaml's own settings, and a folder of ours."""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from native.settings import LOOPBACK, ROOT

PROVISIONING: Final = ROOT / "dashboards" / "provisioning"
PASSWORD: Final = "password"  # noqa: S105 - a file's name
PASSWORD_BYTES: Final = 18


def environment() -> Mapping[str, str]:
    """Return the variables, with the stack's settings in braces; those that say where things lie are native's."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    shared: dict[str, str] = compose["services"]["grafana"]["environment"]
    shared = {name: value for name, value in shared.items() if name.startswith("GF_") and not name.endswith("__FILE")}
    return shared | {
        # What ends in __FILE the image's start script alone reads; this form Grafana reads itself.
        "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{{{{run}}/grafana/{PASSWORD}}}}}",
        "GF_SECURITY_COOKIE_SECURE": "false",
        "GF_SERVER_HTTP_ADDR": LOOPBACK,
        "GF_SERVER_HTTP_PORT": "{GRAFANA_PORT}",
        "GF_PATHS_DATA": "{run}/grafana/data",
        "GF_PATHS_LOGS": "{run}/grafana/data/log",
        "GF_PATHS_PLUGINS": "{run}/grafana/data/plugins",
        "GF_PATHS_PROVISIONING": "{run}/grafana/provisioning",
        "PROMETHEUS_URL": f"http://{LOOPBACK}:{{PROMETHEUS_PORT}}",
        "DASHBOARDS_PATH": "{root}/dashboards/out",
    }


def write(home: Path) -> None:
    """Write what it is provisioned with, and at the first time a random password that its owner alone can read."""
    for kind in ("datasources", "dashboards"):
        folder = home / "provisioning" / kind
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROVISIONING / f"{kind}.yml", folder / "apc.yml")
    password = home / PASSWORD
    if not password.exists():
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(PASSWORD_BYTES), encoding="utf-8")
