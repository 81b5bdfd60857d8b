"""The environment for processes of a test."""

import os
import re
from typing import Final

SETTINGS: Final = re.compile(r"(VLLM|APC|COMPOSE|GF|GATEWAY|TAOTOKEN|GRAFANA|PROMETHEUS)_.*")


def inherited() -> dict[str, str]:
    """Return the environment without settings of ours."""
    return {name: value for name, value in os.environ.items() if not SETTINGS.fullmatch(name)}
