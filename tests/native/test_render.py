import configparser
import shlex
from pathlib import Path

import pytest
import yaml

from native import render, settings, tools
from native.errors import SettingsError
from native.programs import STACK, Service, ports, resolve

RUN = Path("/srv/my runs")
SOURCE = (settings.ROOT / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
TOOLS = {binary: (f"/tools/{binary}",) for tool in tools.TOOLS.values() for binary in tool.binaries}


def services(**environ: str) -> list[Service]:
    read = settings.read({"APC_RUN_DIR": str(RUN), **environ}, ports(STACK))
    return [resolve(program, read, TOOLS) for program in STACK]


def config(run: Path = RUN, **environ: str) -> str:
    fingerprints = {program.name: "abc" for program in STACK}
    return render.supervisor_config(run, run / "supervisor.sock", services(**environ), fingerprints)


def test_the_default_interval_leaves_the_file_as_docker_reads_it() -> None:
    default = next(setting.default for setting in settings.SETTINGS if setting.name == "APC_SCRAPE_INTERVAL")
    assert render.prometheus_config(SOURCE, default) == SOURCE


@pytest.mark.parametrize(("interval", "timeout"), [("2s", "2s"), ("10s", "10s"), ("1m", "10s")])
def test_the_interval_is_the_only_change_and_the_timeout_fits_in(interval: str, timeout: str) -> None:
    before, after = (yaml.safe_load(text) for text in (SOURCE, render.prometheus_config(SOURCE, interval)))
    assert after.pop("global") == {
        "scrape_interval": interval,
        "evaluation_interval": interval,
        "scrape_timeout": timeout,
    }
    before.pop("global")
    assert after == before


def test_each_job_of_the_file_finds_its_targets_and_each_target_a_job() -> None:
    jobs = {job["job_name"]: job["file_sd_configs"][0]["files"] for job in yaml.safe_load(SOURCE)["scrape_configs"]}
    targets = render.targets(services(APC_EXPORTER_PORT="7001"))
    assert {f"targets/{name}" for name in targets} == {file for files in jobs.values() for file in files}
    assert yaml.safe_load(targets["apc-exporter.yml"]) == [{"targets": ["127.0.0.1:7001"]}]


def test_samples_carry_the_time_of_their_scrape() -> None:
    assert all(job["honor_timestamps"] is False for job in yaml.safe_load(SOURCE)["scrape_configs"])


def test_supervisor_reads_back_what_was_meant() -> None:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"))
    parser.read_string(config(VLLM_URL="http://h/%7Eme"))
    prometheus = parser["program:prometheus"]
    assert shlex.split(prometheus["command"])[1] == f"--config.file={RUN}/prometheus/prometheus.yml"
    assert "VLLM_URL='http://h/%%7Eme'" in parser["program:exporter"]["environment"]
    assert parser["unix_http_server"]["chmod"] == "0700"


def test_no_key_is_rendered() -> None:
    assert "s3cret" not in config(VLLM_API_KEY="s3cret", VLLM_METRICS_API_KEY="s3cret")


def test_a_change_of_what_a_program_reads_changes_its_section() -> None:
    other = {program.name: "abc" for program in STACK} | {"prometheus": "def"}
    before, after = config(), render.supervisor_config(RUN, RUN / "supervisor.sock", services(), other)
    assert [line for line in after.splitlines() if line not in before] == ["environment=APC_FINGERPRINT='def'"]


@pytest.mark.parametrize("name", ["100%", "a ;b", "a #b", "a\nb"])
def test_a_folder_that_supervisor_cannot_read_back_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="supervisor cannot read back"):
        config(Path("/srv") / name)


def test_a_quote_in_a_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="VLLM_URL"):
        config(VLLM_URL="http://h/it's")
