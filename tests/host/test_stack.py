from pathlib import Path

import pytest

from host import __main__, settings, stack
from host.engines import Engines


def test_compose_is_filled_in_with_settings_and_no_key(tmp_path: Path) -> None:
    environ = {"APC_ENV_FILE": str(tmp_path / "env"), "APC_RUN_DIR": str(tmp_path / "run")}
    environ |= {"VLLM_API_KEY": "engine-key", "QWEN_SIGN_IN": "qwen-key", "VLLM_MODEL": "qwen", "APC_IMAGE": "mine:1"}
    found = Engines(settings={"VLLM_URL": "http://host.docker.internal:8000"}, keys=["QWEN_SIGN_IN"])
    told = stack.environment(settings.read(environ), found, tmp_path / "prometheus.yml")
    assert {"engine-key", "qwen-key"} & set(told.values()) == set()
    assert "GF_SECURITY_ADMIN_PASSWORD" not in told
    assert told["VLLM_URL"] == "http://host.docker.internal:8000"
    assert (told["VLLM_MODEL"], told["APC_PULL_POLICY"]) == ("qwen", "missing")
    assert told["APC_PROMETHEUS_CONFIG"] == str(tmp_path / "prometheus.yml")
    assert not (tmp_path / "run").exists()  # nothing is written by it


def test_help_names_no_setting_that_a_container_does_not_get(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.main(["--help"])
    told = capsys.readouterr().out
    assert "APC_EXPORTER_PORT" in told
    assert "APC_EXPORTER_HOST" not in told
    assert "APC_PROBE_HOST" not in told
