"""Each panel that shows something of a simulated engine that works shows it of a real vLLM, too."""

import json
from pathlib import Path

from tests.conftest import ROOT
from tests.dashboards.test_queries import SHOWN_SECONDS, fill
from tests.dashboards.world import WORKING, settled, world
from tests.engine.conftest import start

REAL = "real"
FIRING = "Alerts"  # the world lets one fire for the simulated engine
TOKENS = 9600  # of cache, as the simulated engine has: so that blocks are evicted


def test_no_panel_is_blank(tmp_path: Path) -> None:
    with start("--num-gpu-blocks-override", str(TOKENS // 32)) as url, world(tmp_path, {REAL: url}) as seen:
        now = settled()
        shown = blank = 0
        for path in sorted((ROOT / "dashboards" / "out").glob("apc-*.json")):
            for panel in json.loads(path.read_text("utf-8"))["panels"]:
                for target in panel["targets"] if panel["title"] != FIRING else ():
                    seconds = 0 if target["instant"] else SHOWN_SECONDS
                    for generation, there in seen.items():
                        simulated, real = (
                            there.count(fill(target["expr"], of), now, seconds) for of in (WORKING, REAL)
                        )
                        shown += bool(real)
                        if simulated and not real:
                            blank += 1
                            print(f"{generation}: {path.stem}, {panel['title']}: {target['expr']}")
    print(f"{shown} queries have data of the real engine")
    assert blank == 0
    assert shown > 0
