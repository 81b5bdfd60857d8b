import os
import stat
from pathlib import Path

import pytest

from native import envfile
from native.errors import SettingsError
from native.settings import ROOT


def test_values_are_read_as_compose_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text(
        "# comment\n\nA=plain\nexport B=\"two words\"\nC='a$b # c'\nD=two words # comment\nE=\nF=a#b\nG=x'y\n"
    )
    assert envfile.read(path) == {
        "A": "plain",
        "B": "two words",
        "C": "a$b # c",
        "D": "two words",
        "E": "",
        "F": "a#b",
        "G": "x'y",
    }


@pytest.mark.parametrize("line", ["A=a$b", 'A="a$b"', "no value", "A='open", "1A=x"])
def test_what_compose_would_read_otherwise_is_refused_by_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "env"
    path.write_text(f"GOOD=1\n{line}\n")
    with pytest.raises(SettingsError, match=r"line 2: .+NAME='value'"):
        envfile.read(path)


def test_no_file_has_no_values(tmp_path: Path) -> None:
    assert envfile.read(tmp_path / "env") == {}


def test_the_first_run_makes_a_file_for_its_owner_alone_with_a_random_password(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        assert envfile.ensure_password(tmp_path / "a")
        assert envfile.ensure_password(tmp_path / "b")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    first, second = (envfile.read(tmp_path / name)[envfile.PASSWORD] for name in "ab")
    assert first != second
    assert len(first) >= 24
    assert not envfile.others_may_read(tmp_path / "a")


def test_a_password_that_is_there_is_kept_and_a_missing_one_added(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text(f"{envfile.PASSWORD}=chosen-by-me")
    assert not envfile.ensure_password(path)
    assert envfile.read(path) == {envfile.PASSWORD: "chosen-by-me"}
    path.write_text("VLLM_URL=http://gpu-1:8000")
    path.chmod(0o644)
    assert envfile.ensure_password(path)
    assert set(envfile.read(path)) == {"VLLM_URL", envfile.PASSWORD}
    assert envfile.others_may_read(path)


def test_a_folder_in_its_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        envfile.ensure_password(tmp_path)


def test_the_environment_goes_before_the_file_unless_it_is_blank(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("VLLM_URL=http://gpu-1:8000\nVLLM_MODEL=qwen\nVLLM_API_KEY='a$b'\n")
    environ = {"APC_ENV_FILE": str(tmp_path / "env"), "VLLM_URL": "http://gpu-2:8000", "VLLM_MODEL": " ", "BLANK": ""}
    assert envfile.merged(environ) == environ | {"VLLM_MODEL": "qwen", "VLLM_API_KEY": "a$b"}
    assert envfile.merged({"APC_ENV_FILE": str(tmp_path / "none")}) == {"APC_ENV_FILE": str(tmp_path / "none")}
    assert envfile.path_in({}) == ROOT / ".env"
