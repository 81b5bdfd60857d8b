"""Each runbook of `prometheus/runbooks` as a dashboard of its own: a link from an alert works wherever Grafana runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dashboards.frame import runbook_uid
from dashboards.panels import page
from dashboards.style import Json

FOLDER: Final = Path(__file__).parents[1] / "prometheus" / "runbooks"
HEADING: Final = re.compile(r"\A# .*\n+")
TO_RUNBOOK: Final = re.compile(r"\]\((?:\./)?(Apc\w+)\.md(?:#[\w-]*)?\)")


def build() -> Iterator[Json]:
    """Yield the dashboards, in the order of their names."""
    for path in sorted(FOLDER.glob("*.md")):
        content = HEADING.sub("", path.read_text(encoding="utf-8"))
        linked = TO_RUNBOOK.sub(lambda found: f"](/d/{runbook_uid(found[1])})", content)
        yield page(runbook_uid(path.stem), f"Runbook {path.stem}", linked)
