import stat
from pathlib import Path

import pytest

from host import files
from native.envfile import PASSWORD
from native.errors import SettingsError
from native.settings import ROOT

ENVIRON = {
    "VLLM_API_KEY": "engine-key",
    "VLLM_METRICS_API_KEY": " metrics-key ",
    "QWEN_KEY": "qwen-key",
    PASSWORD: "grafana-password",
    "TAOTOKEN_API_KEY": " ",
}


def written(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_each_service_gets_its_own_keys_and_nothing_else(tmp_path: Path) -> None:
    files.write(tmp_path, ENVIRON, {"ca.pem": b"certificate"}, ["QWEN_KEY"])
    assert written(tmp_path) == {
        "engines/ca.pem": "certificate",
        "secrets/exporter/VLLM_METRICS_API_KEY": "metrics-key",
        "secrets/exporter/QWEN_KEY": "qwen-key",
        "secrets/probe/VLLM_API_KEY": "engine-key",
        "secrets/probe/VLLM_METRICS_API_KEY": "metrics-key",
        "secrets/probe/QWEN_KEY": "qwen-key",
        "secrets/vllm/VLLM_API_KEY": "engine-key",
        f"secrets/grafana/{PASSWORD}": "grafana-password",
    }
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def test_a_key_that_is_gone_is_removed_and_what_stays_is_left_alone(tmp_path: Path) -> None:
    files.write(tmp_path, ENVIRON, {"ca.pem": b"certificate"}, ())
    key = tmp_path / "secrets" / "probe" / "VLLM_METRICS_API_KEY"
    before, marks = key.stat(), files.marks(tmp_path)
    files.write(tmp_path, ENVIRON, {"ca.pem": b"certificate"}, ())
    assert files.marks(tmp_path) == marks
    files.write(tmp_path, ENVIRON | {"VLLM_API_KEY": ""}, {}, ())
    assert not (tmp_path / "secrets" / "probe" / "VLLM_API_KEY").exists()
    assert not (tmp_path / "engines" / "ca.pem").exists()
    assert key.stat().st_mtime_ns == before.st_mtime_ns


def test_marks_change_with_what_their_service_reads_and_hold_no_key(tmp_path: Path) -> None:
    files.write(tmp_path, ENVIRON, {}, ())
    files.write_prometheus(tmp_path, "15s", "")
    before = files.marks(tmp_path)
    assert not [key for key in ENVIRON.values() if key.strip() and key in str(before)]
    files.write(tmp_path, ENVIRON | {"VLLM_API_KEY": "another"}, {}, ())
    keys = files.marks(tmp_path)
    assert {name for name in keys if keys[name] != before[name]} == {"APC_READS_ENGINES", "APC_READS_VLLM"}
    files.write(tmp_path, ENVIRON | {"VLLM_API_KEY": "another", PASSWORD: "new-password"}, {}, ())
    passwords = files.marks(tmp_path)
    assert {name for name in passwords if passwords[name] != keys[name]} == {"APC_READS_GRAFANA"}
    files.write_prometheus(tmp_path, "1s", "")
    after = files.marks(tmp_path)
    assert after["APC_READS_PROMETHEUS"] != before["APC_READS_PROMETHEUS"]
    assert after["APC_READS_ALERTMANAGER"] == before["APC_READS_ALERTMANAGER"]
    files.write_alertmanager(tmp_path, {})
    told = files.marks(tmp_path)
    assert {name for name in told if told[name] != after[name]} == {"APC_READS_ALERTMANAGER"}
    files.write_alertmanager(tmp_path, {})
    assert files.marks(tmp_path) == told


def test_a_channel_of_alertmanager_is_a_file_that_it_alone_gets(tmp_path: Path) -> None:
    secret = tmp_path / "hook"
    secret.write_text("https://hooks.slack.com/services/T0/B0/x")
    files.write_alertmanager(tmp_path / "docker", {"APC_SLACK_URL_FILE": str(secret)})
    found = written(tmp_path / "docker")
    assert found.pop("secrets/alertmanager/APC_SLACK_URL_FILE") == "https://hooks.slack.com/services/T0/B0/x"
    assert "api_url_file: /run/secrets/APC_SLACK_URL_FILE" in found.pop("secrets/alertmanager/alertmanager.yml")
    assert found == {}
    with pytest.raises(SettingsError, match="APC_SLACK_URL_FILE: /no/such cannot be read"):
        files.write_alertmanager(tmp_path / "docker", {"APC_SLACK_URL_FILE": "/no/such"})


def test_the_scrape_interval_is_set_and_the_default_changes_nothing(tmp_path: Path) -> None:
    source = (ROOT / "prometheus" / "prometheus.yml").read_text()
    assert files.write_prometheus(tmp_path, "15s", "").read_text() == source
    assert "scrape_interval: 1s" in files.write_prometheus(tmp_path, "1s", "").read_text()


def test_a_folder_that_cannot_be_written_is_told_by_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="APC_RUN_DIR: cannot write"):
        files.write(tmp_path / "file" / "docker", ENVIRON, {}, ())


def test_delete_leaves_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    files.write(tmp_path / "docker", ENVIRON, {}, ())
    files.delete(tmp_path / "docker")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
