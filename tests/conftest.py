"""Shared by all tests: where the inputs lie, the golden files, promtool."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files from what the code gives")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file, or rewrite the file with --update-golden."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"{path} differs; `make golden` rewrites it"

    return compare


@pytest.fixture(scope="session")
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run promtool, the one of the path or the one that `make setup` fetched."""
    found = shutil.which("promtool") or next((str(p) for p in (ROOT / ".tools").rglob("promtool") if p.is_file()), None)
    assert found, "promtool is missing: run `make setup`"

    def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run([found, *args], input=stdin, capture_output=True, text=True, check=False)

    return run
