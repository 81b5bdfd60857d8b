from pathlib import Path

import pytest

from native import programs, settings
from native.errors import SettingsError

EXPORTER, PROMETHEUS = programs.EXPORTER_PORT, programs.PROMETHEUS_PORT


def faults(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings.read(environ, (EXPORTER, PROMETHEUS))
    return str(caught.value).splitlines()


def test_defaults_and_blank_values() -> None:
    read = settings.read({"PROMETHEUS_PORT": "  ", "APC_RUN_DIR": ""}, (EXPORTER, PROMETHEUS))
    assert (read.values["PROMETHEUS_PORT"], read.values["APC_EXPORTER_PORT"]) == ("9390", "9391")
    assert read.values["APC_SCRAPE_INTERVAL"] == "15s"
    assert read.run == settings.ROOT / ".run"


def test_run_folder_is_absolute_and_may_lie_anywhere(tmp_path: Path) -> None:
    assert settings.run_folder({"APC_RUN_DIR": str(tmp_path)}) == tmp_path.resolve()
    assert settings.run_folder({"APC_RUN_DIR": "a/../b"}) == settings.ROOT / "b"


@pytest.mark.parametrize("text", ["0", "65536", "-1", "http", "93 90", "٣"])
def test_a_port_out_of_range_names_its_setting_and_an_example(text: str) -> None:
    [fault] = faults(PROMETHEUS_PORT=text)
    assert fault.startswith("PROMETHEUS_PORT: ")
    assert fault.endswith("Example: PROMETHEUS_PORT=9390")


def test_every_fault_is_told_at_once() -> None:
    told = faults(
        PROMETHEUS_PORT="x", APC_SCRAPE_INTERVAL="5", PROMETHEUS_RETENTION_SIZE="big", APC_EXPORTER_HOST="a b"
    )
    assert {fault.partition(":")[0] for fault in told} == {
        "PROMETHEUS_PORT",
        "APC_SCRAPE_INTERVAL",
        "PROMETHEUS_RETENTION_SIZE",
        "APC_EXPORTER_HOST",
    }


def test_two_programs_on_one_port_are_both_named() -> None:
    [fault] = faults(PROMETHEUS_PORT="9391")
    assert "PROMETHEUS_PORT" in fault
    assert "APC_EXPORTER_PORT" in fault


@pytest.mark.parametrize(
    ("interval", "good"), [("1s", True), ("15s", True), ("30s", True), ("31s", False), ("1m", False)]
)
def test_the_interval_leaves_two_scrapes_in_the_rules_shortest_window(interval: str, *, good: bool) -> None:
    if good:
        assert settings.read({"APC_SCRAPE_INTERVAL": interval}, ()).values["APC_SCRAPE_INTERVAL"] == interval
    else:
        assert faults(APC_SCRAPE_INTERVAL=interval)[0].startswith("APC_SCRAPE_INTERVAL: ")


def test_what_programs_inherit_is_told_from_what_is_rendered_for_them() -> None:
    environ = {"VLLM_API_KEY": "k", "QWEN_KEY": "q", "APC_SCRAPE_INTERVAL": "2s", "HTTPS_PROXY": "p", "HOME": "/root"}
    assert set(settings.passed_on(environ, ["APC_SCRAPE_INTERVAL"])) == {"VLLM_API_KEY", "QWEN_KEY", "HTTPS_PROXY"}
