"""The environment for processes of a test."""

import os
import re
from typing import Final

SETTINGS: Final = re.compile(r"(VLLM|APC|COMPOSE|GF|GATEWAY|TAOTOKEN|GRAFANA|PROMETHEUS)_.*")


def inherited() -> dict[str, str]:
    """Return the environment without settings of ours, and with no file of any."""
    kept = {name: value for name, value in os.environ.items() if not SETTINGS.fullmatch(name)}
    return {**kept, "APC_ENV_FILE": os.devnull}
