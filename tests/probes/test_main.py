"""The command line and the serving process."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.engine import serving
from demo.rank import Settings
from probes.__main__ import main
from tests.inputs import TESTS
from tests.sockets import free_port

FAST = Settings(base_ms=1, decode_ms=0, prefill_us_per_token=20)


def test_once_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FAST) as engine:
        assert main(["once", "--base-url", f"{engine.url}/v1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    arms = [result["arm"] for result in told["results"]]
    assert arms == ["calibration", "retained", "control", "repeat", "repeat"]
    assert [result["cached_tokens"] > 0 for result in told["results"][1:]] == [False, False, True, True]
    assert told["result"] == "ok"
    assert told["unit_tokens"] == 16
    assert told["error"] is None


def test_once_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FAST) as engine:
        assert main(["once", "--base-url", engine.url]) == 0
    shown = capsys.readouterr().out
    assert "TTFT ms" in shown
    assert shown.count("repeat") == 2


def test_a_call_that_names_a_server_asks_it_and_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    listed = tmp_path / "targets.yaml"
    listed.write_text("targets: [{name: other, url: http://127.0.0.1:1}]\n", encoding="utf-8")
    triple = {"GATEWAY_BASE_URL": "http://127.0.0.1:1", "GATEWAY_API_KEY": "k", "GATEWAY_MODEL": "m"}
    others = {"APC_TARGETS": str(listed), "VLLM_METRICS_URL": "http://127.0.0.1:1/metrics", **triple}
    for name, value in others.items():
        monkeypatch.setenv(name, value)
    with serving(FAST) as engine:
        assert main(["once", "--base-url", engine.url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["result"] == "ok"  # one object: the gateway was not asked
        assert main(["doctor", "--base-url", engine.url]) == 0
    shown = capsys.readouterr().out
    assert f"vllm: {engine.url}" in shown
    assert "vllm-v1 0.32.0" in shown
    assert "gateway" not in shown


def test_the_doctor_keeps_to_a_gateway_s_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(FAST) as engine:
        settings = {"VLLM_URL": engine.url, "GATEWAY_BASE_URL": engine.url, "GATEWAY_API_KEY": "k"}
        settings |= {"GATEWAY_MODEL": "qwen2.5-7b-instruct", "GATEWAY_TOKENS_PER_MINUTE": "6000"}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("canary cycle 3") == 1
    assert "more than are left of 6000 a minute: raise GATEWAY_TOKENS_PER_MINUTE" in " ".join(shown.split())
    assert shown.count("healthy") == 2


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["doctor", "--pause", "soon"], "argument --pause: 'soon' is no number of seconds, 0 or more"),
        (["bench", "--timeout", "-1"], "argument --timeout: '-1' is no number of seconds, 0 or more"),
        (["bench", "--repetitions", "0"], "argument --repetitions: '0' is no whole number from 1"),
        (["bench", "--clients", "1;4"], "argument --clients: '1;4' is no list of whole numbers such as 1,4,16"),
    ],
)
def test_wrong_arguments_are_told_in_words(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_once_against_nothing_names_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["once", "--base-url", f"http://127.0.0.1:{free_port()}"]) == 1
    shown = capsys.readouterr().out
    assert "starting_or_down" in shown
    assert "nothing listens at" in shown
    assert "VLLM_URL" in shown


def test_wrong_settings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("APC_PROBE_PORT", "x")
    assert main(["once", "--base-url", "gpu"]) == 2
    assert [line.split(":")[0].strip() for line in capsys.readouterr().err.splitlines()[1:]] == [
        "APC_PROBE_PORT",
        "VLLM_URL",
    ]


@contextmanager
def probe(**environ: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = str(free_port())
    settings = os.environ | {"APC_PROBE_PORT": port, "APC_CANARY_INTERVAL": "1"} | environ
    command = [sys.executable, "-m", "probes"]
    with subprocess.Popen(command, env=settings, cwd=TESTS.parent, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def metrics(url: str, wanted: str) -> str:
    """Return the metrics once they show something; within 10 seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
                text: str = answer.read().decode()
        except OSError:
            continue
        if wanted in text:
            return text
    raise AssertionError(f"{wanted} did not come")


def test_two_targets_side_by_side_and_one_of_them_hangs() -> None:
    key = "sk-demo-0000"
    with serving(Settings(api_key=key, base_ms=1, decode_ms=0)) as engine, serving(FAST) as gateway:
        engine.switch({"wedge": True})
        triple = {
            "GATEWAY_BASE_URL": gateway.url,
            "GATEWAY_API_KEY": "sk-other",
            "GATEWAY_MODEL": "qwen2.5-7b-instruct",
        }
        environ = {"VLLM_URL": engine.url, "VLLM_API_KEY": key, "GATEWAY_INTERVAL": "1", **triple}
        environ["GATEWAY_TOKENS_PER_MINUTE"] = "100000"
        with probe(**environ, APC_CANARY_FIRST_TOKEN_TIMEOUT="1") as (process, url):
            text = metrics(url, 'apc_canary_runs_total{result="ok",target="gateway"} 2.0')
            metrics(url, 'reason="timeout_first_token",target="vllm"} 1.0')
            assert 'apc_canary_runs_total{result="ok",target="vllm"} 0.0' in text
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=10)
            assert process.returncode == 0
            assert time.monotonic() - started < 5
    assert "sk-" not in text + log
    assert "timeout_first_token" in log


def test_the_curve_is_swept_from_the_start_unless_switched_off() -> None:
    ran = 'apc_canary_runs_total{result="ok",target="vllm"} 2.0'
    with serving(Settings(base_ms=1, decode_ms=1, prefill_us_per_token=5)) as engine:
        budget = {"VLLM_URL": engine.url, "APC_CANARY_TOKENS_PER_MINUTE": "1000000"}
        with probe(**budget, APC_CURVE_INTERVAL="60") as (_, url):
            metrics(url, 'apc_canary_requests_total{arm="curve",target="vllm"} 4.0')
        with probe(**budget, APC_CURVE_INTERVAL="0") as (_, url):
            assert 'apc_canary_requests_total{arm="curve",target="vllm"} 0.0' in metrics(url, ran)


def test_sigterm_ends_it_within_five_seconds_while_a_request_hangs() -> None:
    with serving(FAST) as engine:
        engine.switch({"wedge": True})
        with probe(VLLM_URL=engine.url) as (process, url):
            metrics(url, "apc_canary_interval_seconds")
            deadline = time.monotonic() + 5
            while "v1/models" not in requests_seen(engine.url) and time.monotonic() < deadline:
                pass
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=10)
            assert time.monotonic() - started < 5


def requests_seen(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        return "".join(line for line in answer.read().decode().splitlines() if "http_requests" in line)


def test_a_taken_port_is_named() -> None:
    with serving(FAST) as engine:
        port = engine.url.rpartition(":")[2]
        ran = subprocess.run(
            [sys.executable, "-m", "probes"],
            env=os.environ | {"APC_PROBE_PORT": port},
            cwd=TESTS.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 3
    assert "APC_PROBE_PORT: cannot listen on" in ran.stderr
