"""The bench against simulated engines: what it measures, what it warns of, and what it keeps when stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from demo.engine import Engine, serving
from demo.rank import Settings
from probes.bench import main
from tests.inputs import TESTS
from tests.sockets import free_port
from tests.waiting import wait_for

FAST = Settings(base_ms=1, decode_ms=1, prefill_us_per_token=20)
OFF = Settings(base_ms=1, decode_ms=1, prefill_us_per_token=20, prefix_caching=False)


def bench(tmp_path: Path, engine: Engine, *argv: str, code: int | None = None) -> dict[str, Any]:
    """Run it; without `code`, a warning that a busy machine may bring is no failure."""
    file = tmp_path / "bench.json"
    ended = main(["--base-url", engine.url, "--json", str(file), "--html", str(tmp_path / "bench.html"), *argv])
    assert ended in ((0, 1) if code is None else (code,))
    told: dict[str, Any] = json.loads(file.read_text())
    return told


def changes(told: dict[str, Any], mode: str) -> dict[tuple[str, str], float]:
    return {(one["what"], one["against"]): one["change"]["value"] for one in told["changes"] if one["mode"] == mode}


def warnings(told: dict[str, Any]) -> list[str]:
    return [note["text"] for note in told["notes"] if note["warning"]]


def test_two_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FAST) as on, serving(OFF) as off:
        told = bench(tmp_path, on, "--baseline-url", f"{off.url}/v1", "--repetitions", "6")
    found = changes(told, "article")
    assert found["TTFT of rounds 2-5", "off"] < -0.5
    assert found["TTFT of rounds 2-5", "round 1"] < -0.5
    assert found["TTFT of rounds 2-5", "off"] < found["five-round mean TTFT", "off"]
    for one in told["changes"]:
        assert one["change"]["n"] == 6
        assert one["change"]["low"] <= one["change"]["value"] <= one["change"]["high"]
    windows = {(one["stage"], one["arms"]): one for one in told["windows"]}
    article = windows["article", "on"]
    assert article["requests"] == article["sent_requests"] == 30
    assert article["hits"] == article["usage_cached"] > 0
    assert article["prompt"] == article["sent_prompt"]
    assert windows["article", "off"]["state"] == "not_looked_up"
    assert told["servers"]["on"]["prefix_caching"]
    assert not told["servers"]["off"]["prefix_caching"]
    assert told["floor"]["warm_computed"] < 100 < told["floor"]["cold_computed"]
    assert told["floor"]["warm_prefill"]["value"] < told["floor"]["cold_prefill"]["value"]
    assert "five-round mean TTFT" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["salt", "head"])
def test_one_server_has_both_arms(tmp_path: Path, how: str) -> None:
    with serving(FAST) as engine:
        told = bench(tmp_path, engine, "--off", how, "--modes", "article", "--repetitions", "2")
    cached = {(row["arm"], row["kind"]): row["cached"] for row in told["rows"]}
    assert cached["on", "warm"] > 2000
    assert cached["off", "warm"] == cached["on", "cold"] == 0
    assert not warnings(told)


def test_salt_is_chosen_where_the_engine_takes_it(tmp_path: Path) -> None:
    with serving(FAST) as engine:
        assert bench(tmp_path, engine, "--modes", "article", "--repetitions", "1")["off"] == "salt"
        engine.switch({"no_metrics": True})
        told = bench(tmp_path, engine, "--modes", "article", "--repetitions", "1")
    assert told["off"] == "head"
    assert told["windows"][0]["state"] == "not read"


def test_sweeps(tmp_path: Path) -> None:
    sweeps = "--modes", "length,share,load,chat", "--lengths", "256,2048", "--shares", "0,50,100"
    with serving(FAST) as on, serving(OFF) as off:
        rest = "--clients", "1,4", "--turns", "3", "--repetitions", "2", "--baseline-url", off.url
        told = bench(tmp_path, on, *sweeps, *rest)
    rows = {(row["mode"], row["at"], row["arm"], row["kind"]): row for row in told["rows"]}
    assert rows["length", 2048, "on", "warm"]["ttft"]["value"] < rows["length", 2048, "on", "cold"]["ttft"]["value"]
    cached = [
        rows["share", at, "on", "warm"]["cached"] / rows["share", at, "on", "warm"]["prompt"] for at in (0, 50, 100)
    ]
    assert cached == pytest.approx([0, 0.5, 1], abs=0.06)
    assert rows["load", 4, "on", "warm"]["per_second"] > rows["load", 4, "off", "warm"]["per_second"]
    assert rows["load", 4, "on", "warm"]["requests"] == 20
    assert rows["chat", 3, "on", "warm"]["cached"] > rows["chat", 2, "on", "warm"]["cached"] > 0
    page = (tmp_path / "bench.html").read_text()
    assert page.count("<svg") == 4
    assert "http-equiv" not in page
    assert not [word for word in ("<script", "<link", "src=", "@import", "url(") if word in page]


def test_other_traffic_is_told(tmp_path: Path) -> None:
    body = json.dumps({"model": "qwen2.5-7b-instruct", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
    stop = threading.Event()

    def disturb(url: str) -> None:
        while not stop.wait(0.1):
            request = urllib.request.Request(f"{url}/v1/chat/completions", body.encode())
            request.add_header("content-type", "application/json")
            urllib.request.urlopen(request, timeout=5).read()

    with serving(FAST) as engine:
        other = threading.Thread(target=disturb, args=(engine.url,))
        other.start()
        try:
            told = bench(tmp_path, engine, "--modes", "article", "--repetitions", "1", code=1)
        finally:
            stop.set()
            other.join()
    assert warnings(told)[0].startswith("Other traffic ran (")


def test_no_reuse_is_told(tmp_path: Path) -> None:
    with serving(OFF) as engine:
        told = bench(tmp_path, engine, "--modes", "article", "--repetitions", "1", code=1)
    assert any("hardly reuses" in text for text in warnings(told))


def test_a_baseline_that_hits_is_none(tmp_path: Path) -> None:
    with serving(FAST) as one, serving(FAST) as two:
        told = bench(tmp_path, one, "--baseline-url", two.url, "--modes", "article", "--repetitions", "1", code=1)
    assert any("it is no baseline" in text for text in warnings(told))


def test_a_prompt_below_the_reuse_unit_is_told(tmp_path: Path) -> None:
    with serving(FAST, faults={"block_size": 512}) as engine:
        told = bench(tmp_path, engine, "--modes", "length", "--lengths", "64,2048", "--repetitions", "1", code=1)
    assert any("no longer than the reuse unit, 512" in text for text in warnings(told))


def test_decoding_that_hides_the_effect_is_told(tmp_path: Path) -> None:
    slow = Settings(base_ms=1, decode_ms=4, prefill_us_per_token=5)
    with serving(slow) as engine:
        few = "--modes", "article", "--repetitions", "1", "--max-tokens", "64"
        told = bench(tmp_path, engine, *few, code=1)
    assert any(text.startswith("max_tokens 64 hides the effect") for text in warnings(told))


def test_a_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gateway.json"
    gateway = ["--gateway", "--modes", "article", "--repetitions", "1", "--json", str(file)]
    assert main(gateway) == 2
    with serving(Settings(base_ms=1, decode_ms=2, api_key="k"), faults={"no_metrics": True}) as engine:
        triple = {"BASE_URL": f"{engine.url}/v1", "API_KEY": "k", "MODEL": "qwen2.5-7b-instruct"}
        for name, value in triple.items():
            monkeypatch.setenv(f"TAOTOKEN_{name}", value)
        assert main(gateway) == 0
    told = json.loads(file.read_text())
    assert told["windows"] == [] or {one["state"] for one in told["windows"]} == {"not read"}
    assert changes(told, "article")["TTFT of rounds 2-5", "off"] < 0


def test_the_time_limit(tmp_path: Path) -> None:
    with serving(FAST) as engine:
        told = bench(tmp_path, engine, "--profile", "full", "--limit", "1", code=1)
    assert told["stopped"] == "the time was up"
    assert 0 < told["requests"] < told["planned"]


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    file, page = tmp_path / "bench.json", tmp_path / "bench.html"
    with serving(FAST) as engine:
        argv = ["--base-url", engine.url, "--profile", "full", "--json", str(file), "--html", str(page)]
        code = "import sys; from probes.bench import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, *argv]
        with subprocess.Popen(command, cwd=TESTS.parent, env=os.environ | {"PYTHONPATH": "."}) as process:
            wait_for(lambda: engine.requests["POST", "/v1/chat/completions", "2xx"] >= 40)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 1
    told = json.loads(file.read_text())
    assert told["stopped"] == "stopped by hand"
    assert [row for row in told["rows"] if row["mode"] == "article"]
    assert "<svg" in page.read_text()


def test_wrong_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--modes", "artcle"]) == 2
    assert main(["--shares", "120"]) == 2
    assert main(["--base-url", "gpu"]) == 2
    assert "no mode artcle" in capsys.readouterr().err


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--base-url", f"http://127.0.0.1:{free_port()}"]) == 3
    assert "nothing listens" in capsys.readouterr().err
