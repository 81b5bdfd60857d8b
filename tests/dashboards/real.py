"""`python -m tests.dashboards.real`: which panels are blank for a real vLLM and not for a simulated one.

Not among the tests: a real engine, its traffic, canary and sweeps beside five simulated ones want more than two CPUs,
and what is late is blank. Exit code 1 where a panel is.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from native.report import table
from tests.conftest import ROOT
from tests.dashboards.test_queries import SHOWN_SECONDS, fill
from tests.dashboards.world import WORKING, settled, world
from tests.engine.conftest import start

REAL: Final = "real"
FIRING: Final = "Alerts"  # the world lets one fire for the simulated engine
TOKENS: Final = 9600  # of cache, as the simulated engine has: so that blocks are evicted


def main() -> int:
    """Print a row for each panel, with the series returned, and return the exit code."""
    rows: list[tuple[str, ...]] = [("DASHBOARD", "PANEL", "QUERY", "PROMETHEUS", "SIMULATED", "REAL")]
    with (
        tempfile.TemporaryDirectory(prefix="apc-world-") as folder,
        start("--num-gpu-blocks-override", str(TOKENS // 32)) as url,
        world(Path(folder), {REAL: url}) as seen,
    ):
        now = settled()
        for path in sorted((ROOT / "dashboards" / "out").glob("apc-*.json")):
            for panel in json.loads(path.read_text("utf-8"))["panels"]:
                for target in panel["targets"] if panel["title"] != FIRING else ():
                    seconds = 0 if target["instant"] else SHOWN_SECONDS
                    for generation, there in seen.items():
                        counts = [there.count(fill(target["expr"], of), now, seconds) for of in (WORKING, REAL)]
                        legend = target["legendFormat"] or target["refId"]
                        rows.append((path.stem, panel["title"][:40], legend[:24], generation, *map(str, counts)))
    blank = [row for row in rows[1:] if row[-2] != "0" and row[-1] == "0"]
    print(table(rows))
    print(
        f"  {sum(row[-1] != '0' for row in rows[1:])} queries have series of the real engine, {len(blank)} are blank:"
    )
    print(table(blank) if blank else "  none")
    return int(bool(blank))


if __name__ == "__main__":
    sys.exit(main())
