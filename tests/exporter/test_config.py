"""Wrong settings are refused with every fault at once: the setting's name, what is wrong, an example."""

import dataclasses
from pathlib import Path

import pytest

from exporter.__main__ import main
from exporter.checks import ConfigError
from exporter.config import Settings, Target, load

GOOD = "targets:\n- {name: a, url: 'http://a:1/v1'}\n"
EXAMPLE = "Example: VLLM_URL=http://localhost:8000"
ENVIRONMENT = {
    "a scheme is missing": (
        {"VLLM_URL": "localhost:8000"},
        "VLLM_URL: 'localhost:8000' is no http or https address. Example: VLLM_URL=http://localhost:8000",
    ),
    "a port that is none": (
        {"VLLM_URL": "http://gpu:port"},
        "VLLM_URL: 'http://gpu:port' is no http or https address. Example: VLLM_URL=http://localhost:8000",
    ),
    "a secret in the address": (
        {"VLLM_URL": "http://user:sk-demo-0000@gpu:8000"},
        "VLLM_URL: holds a user or password, which would be logged; use a key setting." + f" {EXAMPLE}",
    ),
    "a query": (
        {"VLLM_URL": "http://gpu:8000?x=1"},
        f"VLLM_URL: 'http://gpu:8000' has a query or fragment after it. {EXAMPLE}",
    ),
    "an empty query": (
        {"VLLM_URL": "http://gpu:8000/v1?"},
        f"VLLM_URL: 'http://gpu:8000/v1' has a query or fragment after it. {EXAMPLE}",
    ),
    "an empty fragment": (
        {"VLLM_URL": "http://gpu:8000#"},
        f"VLLM_URL: 'http://gpu:8000' has a query or fragment after it. {EXAMPLE}",
    ),
    "a secret in the query of what is no address": (
        {"VLLM_URL": "gpu:8000?key=sk-demo-0000@b"},
        f"VLLM_URL: '...' is no http or https address. {EXAMPLE}",
    ),
    "a placeholder": (
        {"VLLM_URL": "http://<host>:8000"},
        f"VLLM_URL: 'http://<host>:8000' holds '<', as a placeholder does and no address. {EXAMPLE}",
    ),
    "a variable": (
        {"VLLM_URL": "http://${HOST}:8000"},
        f"VLLM_URL: 'http://${{HOST}}:8000' holds '$', as a placeholder does and no address. {EXAMPLE}",
    ),
    "a blank": (
        {"VLLM_URL": "http://gpu 8000"},
        f"VLLM_URL: 'http://gpu 8000' holds ' ', as a placeholder does and no address. {EXAMPLE}",
    ),
    "a page of the API": (
        {"VLLM_URL": "http://gpu:8000/v1/chat/completions"},
        f"VLLM_URL: 'http://gpu:8000/v1/chat/completions' is a page of the API; leave out /chat/completions. {EXAMPLE}",
    ),
    "a key with a blank in it": (
        {"VLLM_METRICS_API_KEY": "sk-demo 0000"},
        "VLLM_METRICS_API_KEY: holds a blank, a line break or a character that no key has; was it cut or pasted twice?",
    ),
    "a file that is not there": ({"VLLM_CA_FILE": "/no/ca.pem"}, "VLLM_CA_FILE: there is no file /no/ca.pem"),
    "a port out of range": (
        {"APC_EXPORTER_PORT": "70000"},
        "APC_EXPORTER_PORT: '70000' is no number from 1 to 65535. Example: APC_EXPORTER_PORT=9391",
    ),
    "half a port": (
        {"APC_EXPORTER_PORT": "1.5"},
        "APC_EXPORTER_PORT: 1.5 is no whole number. Example: APC_EXPORTER_PORT=9391",
    ),
    "a limit that is no number": (
        {"APC_EXPORTER_TIMEOUT": "nan"},
        "APC_EXPORTER_TIMEOUT: 'nan' is no number from 0.1 to 600. Example: APC_EXPORTER_TIMEOUT=5",
    ),
    "a slip of the pen": (
        {"APC_EXPORTER_PROT": "1"},
        "environment: APC_EXPORTER_PROT is unknown; did you mean APC_EXPORTER_PORT?",
    ),
    "no such targets file": (
        {"APC_TARGETS": "/no/targets.yaml"},
        "APC_TARGETS: /no/targets.yaml cannot be read: No such file or directory",
    ),
}
FILE = {
    "no yaml": ("targets: [", "is no YAML: line 1: expected the node content, but found '<stream end>'"),
    "no list": ("targets: 3\n", "has no list of targets. Example: targets: [{name: qwen, url: 'http://gpu-1:8000'}]"),
    "empty": ("", "has no list of targets."),
    "an unknown key above": (GOOD + "target: []\n", "target is unknown; did you mean targets?"),
    "an unknown key": (
        GOOD.replace("}", ", modle: x}"),
        "APC_TARGETS: targets[0]: modle is unknown; did you mean model?",
    ),
    "a missing key": ("targets: [{name: a}]\n", "targets[0].url: is missing. Example: url: http://gpu-1:8000"),
    "an empty name": (GOOD.replace("a,", "' ',"), "targets[0].name: is empty. Example: name: qwen"),
    "an empty address": (
        "targets: [{name: a, url: ''}]\n",
        "targets[0].url: is empty. Example: url: http://gpu-1:8000",
    ),
    "a key given twice": (
        "targets:\n- {name: a, url: 'http://a:1'}\n- name: b\n  url: 'http://sk-demo:1'\n  name: c\n",
        "is no YAML: line 5: name is given twice",
    ),
    "a key written out": (
        GOOD.replace("}", ", api_key: sk-demo-0000}"),
        "targets[0].api_key: keys are never written in the file; name an environment variable: api_key_env: QWEN_KEY",
    ),
    "a key that is not set": (
        GOOD.replace("}", ", api_key_env: NO_KEY}"),
        "targets[0].api_key_env: the environment has no NO_KEY",
    ),
    "a key for the name of its variable": (
        GOOD.replace("}", ", api_key_env: sk-demo-0000}"),
        "targets[0].api_key_env: the environment has no variable of that name; a key itself is not written here",
    ),
    "a number for a text": (GOOD.replace("a,", "3,"), "targets[0].name: is no text. Example: name: qwen"),
    "one name twice": (GOOD + GOOD.splitlines()[1] + "\n", "two targets have the name 'a'; each name must be unique"),
    "an address that is none": (
        GOOD.replace("http://a:1/v1", "a:1"),
        "targets[0].url: 'a:1' is no http or https address. Example: url: http://localhost:8000",
    ),
}


@pytest.mark.parametrize(("environ", "message"), ENVIRONMENT.values(), ids=ENVIRONMENT)
def test_wrong_environment(environ: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        load(environ)
    assert raised.value.faults == [message]
    assert "sk-demo" not in str(raised.value)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("text", "message"), FILE.values(), ids=FILE)
def test_wrong_file(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load({"APC_TARGETS": str(tmp_path / "targets.yaml")})
    (fault,) = raised.value.faults
    assert message in fault
    assert "sk-demo" not in fault


def test_every_fault_is_named_at_once_and_the_exit_code_is_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"VLLM_URL": "gpu", "APC_EXPORTER_PORT": "x", "APC_EXPORTER_TIMEOUT": "0"}.items():
        monkeypatch.setenv(name, value)
    for call in ([], ["--check"], ["--once"]):
        assert main(call) == 2
        told = capsys.readouterr().err
        assert [line.split(":")[0].strip() for line in told.splitlines()[1:]] == [
            "VLLM_URL",
            "APC_EXPORTER_PORT",
            "APC_EXPORTER_TIMEOUT",
        ]


def test_defaults() -> None:
    assert load({}) == Settings(
        (Target("vllm", "http://localhost:8000", "http://localhost:8000/metrics"),), "127.0.0.1", 9391, 5.0, 16 * 2**20
    )


@pytest.mark.parametrize("url", ["http://gpu:9000", "http://gpu:9000/", "http://gpu:9000/v1", "http://gpu:9000/v1/"])
def test_a_base_url_is_taken_with_and_without_v1(url: str) -> None:
    (target,) = load({"VLLM_URL": url}).targets
    assert (target.url, target.metrics_url) == ("http://gpu:9000", "http://gpu:9000/metrics")


def test_a_file_of_several_engines_takes_keys_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(
        "targets:\n"
        "- {name: one, url: 'http://a:1/v1', api_key_env: KEY, model: m}\n"
        "- {name: two, url: 'https://b/engine', metrics_url: 'http://b:9/metrics', metrics_api_key_env: MKEY}\n",
        encoding="utf-8",
    )
    settings = load({"APC_TARGETS": str(tmp_path / "targets.yaml"), "KEY": " sk-1\n", "MKEY": "sk-2"})
    assert settings.targets == (
        Target("one", "http://a:1", "http://a:1/metrics", api_key="sk-1", model="m"),
        Target("two", "https://b/engine", "http://b:9/metrics", metrics_key="sk-2"),
    )
    assert "sk-" not in repr(settings)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load({}).port = 1  # type: ignore[misc]


def test_check_shows_what_it_understood(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VLLM_METRICS_API_KEY", "sk-demo-0000")
    assert main(["--check"]) == 0
    shown = capsys.readouterr().out
    assert "vllm: http://localhost:8000/metrics with a key" in shown
    assert "sk-demo" not in shown


def test_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from-file", "/no/such.prom"]) == 3
    assert capsys.readouterr().err == "--from-file: /no/such.prom cannot be read: No such file or directory\n"


def test_a_saved_text_has_no_settings_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--check", "--from-file", "x.prom"])
    assert raised.value.code == 2
    assert "give one of them" in capsys.readouterr().err
