"""The inputs that tests read: captured answers of real engines, and field reports as cases."""

import json
import re
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
CAPTURES = sorted((TESTS / "captures").glob("*.prom"))
TRAFFIC: dict[str, Any] = json.loads((TESTS / "captures" / "traffic.json").read_text(encoding="utf-8"))
CASES = TESTS / "cases"
NEWEST = TESTS / "captures" / "v0.32.0__unique-then-shared-traffic__kv-metrics-on.prom"


def capture(name: str) -> str:
    """Return a captured answer by the start of its file name."""
    (path,) = [path for path in CAPTURES if path.name.startswith(name)]
    return path.read_text(encoding="utf-8")


def expectation(case: Path) -> dict[str, Any]:
    """Return the machine-readable block of a case's `expected.md`."""
    block = re.search(r"```json\n(.*?)```", (case / "expected.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block, case
    found: dict[str, Any] = json.loads(block[1])
    return found


def cases(area: str) -> list[Path]:
    """Return the cases that expect something of this area."""
    return [case for case in sorted(CASES.iterdir()) if area in expectation(case)]
