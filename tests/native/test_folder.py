from pathlib import Path

import pytest

from native import folder
from native.errors import NativeError, SettingsError


def test_the_socket_lies_in_the_folder_where_its_path_can_be_bound(tmp_path: Path) -> None:
    assert folder.socket(Path("/srv/apc/.run")) == Path("/srv/apc/.run/supervisor.sock")
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    assert len(str(folder.socket(deep))) <= folder.LONGEST_SOCKET
    assert folder.socket(deep) != folder.socket(deep / "f")


def test_a_temporary_folder_that_others_may_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    monkeypatch.setattr(folder, "socket", lambda _run: shared / "s.sock")
    with pytest.raises(NativeError, match="is not ours alone"):
        folder.prepare(tmp_path / "run")


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="APC_RUN_DIR"):
        folder.prepare(tmp_path / "file" / "run")


def test_deleting_leaves_what_others_put_there(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder.prepare(run)
    (run / "logs" / "exporter.log").touch()
    mine = run / "notes.txt"
    mine.touch()
    folder.delete(run)
    assert list(run.iterdir()) == [mine]
    mine.unlink()
    folder.delete(run)
    assert not run.exists()


def test_the_fingerprint_follows_content_and_names_and_not_compiled_files(tmp_path: Path) -> None:
    def now() -> str:
        return folder.fingerprint([tmp_path / "package", tmp_path / "absent"])

    package = tmp_path / "package"
    package.mkdir()
    seen = [now()]
    (package / "a.py").write_text("1")
    seen.append(now())
    (package / "a.py").write_text("2")
    seen.append(now())
    (package / "a.py").rename(package / "b.py")
    seen.append(now())
    (package / "b.pyc").touch()
    assert len(set(seen)) == len(seen)
    assert now() == seen[-1]
