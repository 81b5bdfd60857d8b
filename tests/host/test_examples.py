"""The examples do what their comments say, as far as Prometheus' own tool can tell."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

from host import files
from native.settings import ROOT

EXAMPLES = ROOT / "compose" / "examples"
HASH = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"  # of "test", from Prometheus' documentation
OUTPUT = ("-keyout", "server.key", "-out", "server.crt")
Promtool = Callable[..., subprocess.CompletedProcess[str]]


def test_every_target_file_that_prometheus_reads_is_there_in_docker() -> None:
    config = yaml.safe_load((ROOT / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    named = re.findall(r"targets/([\w-]+\.yml)", str(config))
    assert named
    for name in named:
        assert yaml.safe_load((ROOT / "compose" / "targets" / name).read_text(encoding="utf-8"))


def test_remote_write_fits_into_prometheus_configuration(tmp_path: Path, promtool: Promtool) -> None:
    path = files.write_prometheus(tmp_path, "15s", "compose/examples/remote_write.yml")
    for folder, source in ("rules", "prometheus/rules"), ("targets", "compose/targets"):
        shutil.copytree(ROOT / source, path.parent / folder)
    assert "remote_write" in yaml.safe_load(path.read_text(encoding="utf-8"))
    check = promtool("check", "config", str(path))
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_web_configuration_is_valid_only_with_a_hash_of_ones_own(tmp_path: Path, promtool: Promtool) -> None:
    for name in ("server.crt", "server.key"):
        (tmp_path / name).touch()
    text = (EXAMPLES / "web.yml").read_text(encoding="utf-8")
    (tmp_path / "web.yml").write_text(text)
    assert promtool("check", "web-config", str(tmp_path / "web.yml")).returncode
    (tmp_path / "web.yml").write_text(text.replace("YOUR-HASH", HASH))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=prometheus", *OUTPUT],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    check = promtool("check", "web-config", str(tmp_path / "web.yml"))
    assert check.returncode == 0, check.stdout + check.stderr


def test_prometheus_behind_tls_keeps_its_other_flags() -> None:
    flags, ours = (
        yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["services"]["prometheus"]["command"]
        for name in ("compose/examples/compose.tls.yaml", "compose.yaml")
    )
    assert flags[:-1] == ours
    assert flags[-1].startswith("--web.config.file=")
