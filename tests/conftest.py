"""Shared by all tests: where the inputs lie, the golden files, promtool."""

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from native.tools import ensure
from tests.generations import newer

ROOT = Path(__file__).parents[1]
OLDER, NEWER = "older", "newer"  # the generations of Prometheus: the stack's own, and Debian sid's
SPARING = os.environ | {"GOGC": "400"}  # a fifth of promtool's time is garbage collection otherwise
Promtool = Callable[..., subprocess.CompletedProcess[str]]
Accepted = Callable[..., None]


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


def runner(program: str) -> Promtool:
    def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *args], input=stdin, capture_output=True, text=True, check=False, env=SPARING)

    return run


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Run the stack's own promtool, the one of the path or the one that `make setup` fetched."""
    return runner(ensure("prometheus")["promtool"][0])


@pytest.fixture(scope="session")
def accepted(promtool: Promtool) -> Accepted:
    """Assert that the promtool of either generation, both run at once, finds no fault."""
    generations = {OLDER: promtool, NEWER: runner(newer("promtool"))}

    def check(*args: str) -> None:
        with ThreadPoolExecutor() as pool:
            runs = {generation: pool.submit(run, *args) for generation, run in generations.items()}
        for generation, run in runs.items():
            done = run.result()
            assert done.returncode == 0, f"{generation}: {done.stdout}{done.stderr}"

    return check
