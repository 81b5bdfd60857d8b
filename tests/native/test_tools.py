"""Fetching a tool, with stand-ins for apt and dpkg on PATH: what they were asked lies in `calls`."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from native import tools
from native.errors import NativeError

APT_CACHE = (
    'test -e "$LISTS" || { echo "E: No packages found" >&2; exit 100; }; printf "prometheus\\nlibc6\\nlibjs-x\\n"'
)
APT_GET = """
case "$1" in
  update) touch "$LISTS"; exit "${UPDATE_STATUS:-0}" ;;
  download) for name in "$@"; do case "$name" in prometheus|libjs-x) touch "$name.deb" ;; esac; done ;;
esac"""
DPKG = """
mkdir -p "$3/usr/bin" "$3/usr/share/doc"
test "${2##*/}" != libjs-x.deb || { mkdir -p "$3/usr/share/prometheus/web"; exit 0; }
for binary in prometheus promtool; do
  printf '#!/bin/sh\\necho "version 9.9"\\n' > "$3/usr/bin/$binary"; chmod +x "$3/usr/bin/$binary"
done"""


class Machine:
    """A PATH of our own, and the calls of its programs."""

    def __init__(self, root: Path) -> None:
        self.bin, self.log, self.lists = root / "bin", root / "calls", root / "lists"
        self.bin.mkdir()
        for name in ("sh", "touch", "mkdir", "chmod"):
            (self.bin / name).symlink_to(Path("/bin") / name)

    def has(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.log}"\n{script}\n')
        (self.bin / name).chmod(0o755)

    def calls(self) -> list[str]:
        return [" ".join(line.split()[:2]) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(machine.bin))
    monkeypatch.setenv("LISTS", str(machine.lists))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # nobody to ask
    return machine


@pytest.fixture
def debian(machine: Machine) -> Machine:
    machine.lists.touch()
    for name, script in (("apt-cache", APT_CACHE), ("apt-get", APT_GET), ("dpkg", DPKG)):
        machine.has(name, script)
    return machine


@pytest.fixture
def ensure(tmp_path: Path) -> Callable[[], dict[str, tuple[str, ...]]]:
    return lambda: tools.ensure("prometheus", tmp_path / "tools")


def test_what_is_on_path_is_used(machine: Machine, ensure: Callable[[], dict[str, tuple[str, ...]]]) -> None:
    for name in ("prometheus", "promtool"):
        machine.has(name, "echo 'version 3.5.0 (branch)'")
    assert ensure() == {name: (str(machine.bin / name),) for name in ("prometheus", "promtool")}


def test_else_it_is_unpacked_with_its_pages_once(
    debian: Machine, ensure: Callable[[], dict[str, tuple[str, ...]]], tmp_path: Path
) -> None:
    root = tmp_path / "tools" / "prometheus"
    found = ensure()
    assert found["prometheus"] == (
        str(root / "usr/bin/prometheus"),
        f"--web.local-assets={root / 'usr/share/prometheus/web'}",
    )
    assert not (root / "usr/share/doc").exists()
    assert sorted(path.name for path in root.parent.iterdir()) == ["lock", "prometheus"]
    before = debian.calls()
    assert ensure() == found
    assert debian.calls() == before == ["apt-cache depends", "apt-get download", "dpkg -x", "dpkg -x"]


@pytest.mark.parametrize("broken", ["", "#!/bin/sh\nexit 1\n"])
def test_half_unpacked_it_is_repaired(
    debian: Machine, ensure: Callable[[], dict[str, tuple[str, ...]]], tmp_path: Path, broken: str
) -> None:
    binary = tmp_path / "tools" / "prometheus" / "usr" / "bin" / "prometheus"
    binary.parent.mkdir(parents=True)
    binary.write_text(broken)
    binary.chmod(0o755)
    assert ensure()["prometheus"][0] == str(binary)
    assert "apt-get download" in debian.calls()


def test_missing_lists_are_fetched_and_it_is_said(
    debian: Machine, ensure: Callable[[], dict[str, tuple[str, ...]]], capfd: pytest.CaptureFixture[str]
) -> None:
    debian.lists.unlink()
    assert ensure()
    assert debian.calls()[:3] == ["apt-cache depends", "apt-get update", "apt-cache depends"]
    assert "needs `apt-get update`" in capfd.readouterr().out


def test_where_lists_cannot_be_fetched_the_remedy_is_named(
    debian: Machine, ensure: Callable[[], dict[str, tuple[str, ...]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian.lists.unlink()
    monkeypatch.setenv("UPDATE_STATUS", "100")
    with pytest.raises(NativeError, match="run `apt-get update` as root"):
        ensure()
    assert not (tmp_path / "tools" / "prometheus").exists()


def test_without_root_and_sudo_nothing_is_run(
    debian: Machine, ensure: Callable[[], dict[str, tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    debian.lists.unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NativeError, match="run `apt-get update` as root"):
        ensure()
    assert debian.calls() == ["apt-cache depends"]


@pytest.mark.usefixtures("machine")
def test_without_apt_the_remedy_is_to_install_it(ensure: Callable[[], dict[str, tuple[str, ...]]]) -> None:
    with pytest.raises(NativeError, match="install prometheus and put prometheus and promtool on PATH"):
        ensure()


def test_a_package_may_call_a_binary_otherwise_and_its_templates_go_where_it_looks_for_them(
    debian: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools, "SYSTEM", tmp_path / "system")
    debian.has(
        "dpkg",
        'mkdir -p "$3/usr/bin" "$3/usr/share/prometheus/alertmanager/no-ui"\n'
        'touch "$3/usr/share/prometheus/alertmanager/default.tmpl"\n'
        "for binary in prometheus-alertmanager amtool; do\n"
        '  printf \'#!/bin/sh\\necho "alertmanager, version 0.25.0"\\n\' > "$3/usr/bin/$binary"\n'
        '  chmod +x "$3/usr/bin/$binary"\ndone',
    )
    debian.has("apt-cache", "echo prometheus-alertmanager")
    debian.has("apt-get", "touch prometheus-alertmanager.deb")
    root = tmp_path / "tools" / "alertmanager"
    found = tools.ensure("alertmanager", tmp_path / "tools")
    assert found["alertmanager"] == (
        str(root / "usr/bin/prometheus-alertmanager"),
        f"--web.ui-path={root / 'usr/share/prometheus/alertmanager/no-ui'}",
    )
    assert tools.version(found["alertmanager"]) == "0.25.0"
    place = tmp_path / "system" / "usr/share/prometheus/alertmanager"
    assert [path.name for path in place.iterdir()] == ["default.tmpl"]
    assert f"copied the templates of Debian's alertmanager to {place}" in capfd.readouterr().out
    assert tools.ensure("alertmanager", tmp_path / "tools") == found
    assert "copied" not in capfd.readouterr().out


def test_where_templates_cannot_be_placed_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tools, "SYSTEM", tmp_path / "file")
    monkeypatch.setattr(tools, "_on_path", lambda _: [])
    monkeypatch.setattr(tools, "_unpacked", lambda *_: [("alertmanager",), ("amtool",)])
    with pytest.raises(NativeError, match="apt-get install prometheus-alertmanager as root, or run this once as root"):
        tools.ensure("alertmanager", tmp_path)


def test_a_grafana_is_told_where_its_own_files_are(machine: Machine, tmp_path: Path) -> None:
    machine.has("grafana", "echo 'grafana version 11.2.0'")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "defaults.ini").touch()
    assert tools.ensure("grafana") == {"grafana": (str(machine.bin / "grafana"), "server", f"--homepath={tmp_path}")}


@pytest.mark.usefixtures("machine")
def test_without_a_grafana_one_line_says_where_to_get_it() -> None:
    with pytest.raises(
        NativeError, match=r"^grafana not found: install it from \S+; the dashboards are in dashboards/out$"
    ):
        tools.ensure("grafana")
