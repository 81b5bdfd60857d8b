"""The build: the same everywhere, as committed, and in the house style."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards import build, names, runbooks, verdicts
from dashboards.__main__ import main
from dashboards.frame import SOURCE_UID
from dashboards.style import LINES
from dashboards.verdicts import State
from probes.verdict import Code

FOLDER = Path(build.__file__).parent
BOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in build.OUT.glob("*.json")}
OURS = ("apc-oncall", "apc-canary", "apc-capacity", "apc-fleet")
ONE_SCREEN = 22  # units of 38 px: 836 of the 1080, the rest is Grafana's and the browser's
OLDEST = "3.11"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
# openai is met on the way to names alone, and needs a part that is compiled for the Python of the tests.
BUILD = """
import sys, unittest.mock
from pathlib import Path
sys.modules["openai"] = unittest.mock.MagicMock()
from dashboards import build
build.OUT = Path(sys.argv[1])
build.write()
"""
LIMIT = State.BAD  # the colour of a line that should not be crossed


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for uid in OURS:
        yield from ((uid, panel) for panel in BOARDS[uid]["panels"] if panel["type"] not in {"row", "text"})


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(item)


def test_what_is_committed_is_what_the_code_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0, capsys.readouterr().out


def test_a_difference_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "OUT", tmp_path / "out")
    assert main(["check"]) == 1
    assert main(["build"]) == 0
    assert main(["check"]) == 0
    (tmp_path / "out" / "apc-fleet.json").write_text("{}", encoding="utf-8")
    (tmp_path / "out" / "stray.json").write_text("{}", encoding="utf-8")
    capsys.readouterr()
    assert main(["check"]) == 1
    told = capsys.readouterr().out
    assert "apc-fleet.json" in told
    assert "stray.json" in told
    assert main(["build"]) == 0
    assert not (tmp_path / "out" / "stray.json").exists()


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_python_makes_the_same_bytes_in_any_order_of_hashes(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if not python and version != OLDEST:
        pytest.skip(f"there is no Python {version} here")
    assert python, f"the oldest Python that is promised, {OLDEST}, is missing"
    committed = {path.name: path.read_bytes() for path in build.OUT.iterdir()}
    for seed in ("1", "2"):
        environ = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": sysconfig.get_path("purelib")}
        argv = [python, "-B", "-c", BUILD, str(tmp_path / seed)]
        built = subprocess.run(argv, cwd=FOLDER.parent, env=environ, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        assert {path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()} == committed


def interpreter(version: str) -> str:
    """Return the path of a Python of this version, on the path or one of pyenv's; empty where there is none."""
    places = [sys.executable, shutil.which(f"python{version}"), *map(str, PYENV.glob(f"{version}.*/bin/python"))]
    told = "import sys; print('%d.%d' % sys.version_info[:2])"
    for place in filter(None, places):
        said = subprocess.run([place, "-c", told], capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:  # a shim of pyenv's may say nothing
            return place
    return ""


def test_a_wrong_name_fails() -> None:
    with pytest.raises(
        names.UnknownNameError, match=r"apc_kv_usage is neither declared nor recorded; apc_kv_usage_ratio"
    ):
        names.check("max(apc_kv_usage)")
    with pytest.raises(names.UnknownNameError, match="target:apc_nothing:rate5m"):
        names.check("target:apc_nothing:rate5m")
    assert names.check('rate(apc_ttft_seconds_bucket{x="apc_unknown"}[5m])')


def test_a_dead_link_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runbooks, "FOLDER", tmp_path)
    with pytest.raises(build.DeadLinkError, match=r"apc-oncall links to /d/runbook-\w+, which is not built"):
        build.boards()


def test_only_panels_knows_grafanalib() -> None:
    users = [path.name for path in FOLDER.glob("*.py") if re.search(r"(?m)^(from|import) grafanalib", path.read_text())]
    assert users == ["panels.py"]


def test_every_verdict_has_words_of_its_own() -> None:
    assert {code for code, _, _ in verdicts.WORDS} == set(Code)
    assert len({words for _, _, words in verdicts.WORDS}) == len(verdicts.WORDS)


def test_the_provisioned_source_is_where_the_variables_start() -> None:
    (source,) = yaml.safe_load((FOLDER / "provisioning" / "datasources.yml").read_text())["datasources"]
    assert source["uid"] == SOURCE_UID
    assert source["url"] == "$PROMETHEUS_URL"
    assert source["jsonData"]["timeInterval"]
    (provider,) = yaml.safe_load((FOLDER / "provisioning" / "dashboards.yml").read_text())["providers"]
    assert provider["allowUiUpdates"] is False


def test_on_call_fits_on_one_screen_in_four_columns() -> None:
    placed = BOARDS["apc-oncall"]["panels"]
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in placed) <= ONE_SCREEN
    heads = [panel for panel in placed if panel["type"] == "text"]
    asked = [panel["options"]["content"] for panel in sorted(heads, key=lambda panel: panel["gridPos"]["x"])]
    assert asked == ["## Is it working?", "## What does it cost?", "## Why?", "## What fires?"]


@pytest.mark.parametrize(("uid", "panel"), [pytest.param(u, p, id=f"{u}: {p['title']}") for u, p in panels()])
def test_every_panel_says_what_it_is(uid: str, panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["noValue"]
    assert re.match(r"[A-Z].{30,}\.$", panel["description"]), panel["description"]
    assert panel["links"], uid
    assert all(link["url"].startswith("/d/") for link in panel["links"])
    assert all(target["instant"] != target["range"] for target in panel["targets"])


def test_colours_say_states_alone() -> None:
    states = {state.value for state in State}
    for uid, panel in panels():
        modes = {found["mode"] for found in walk(panel["fieldConfig"]) if "mode" in found}
        assert modes <= {"fixed", "thresholds", "absolute", "off", "none", "line", "continuous-BlPu"}, (
            uid,
            panel["title"],
        )
        fixed = {found["fixedColor"] for found in walk(panel["fieldConfig"]) if "fixedColor" in found}
        assert fixed <= {*LINES, LIMIT.value, State.NONE.value}, (uid, panel["title"])
    assert not states & set(LINES)


def test_numbers_of_now_are_not_those_of_an_hour_ago() -> None:
    for uid, panel in panels():
        if panel["type"] in {"stat", "bargauge", "table"}:
            assert all(target["instant"] for target in panel["targets"]), (uid, panel["title"])
