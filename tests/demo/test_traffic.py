"""The traffic reuses its prefix unless it is poisoned, outlives a restart and ends when it is told to."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from demo.engine import Engine, serving
from demo.traffic import SYSTEM_PROMPT, Plan, Traffic, questions
from tests.demo.client import FAST, eventually, values


@pytest.fixture
def engine() -> Iterator[Engine]:
    with serving(FAST) as engine:
        yield engine


def started(plan: Plan) -> tuple[Traffic, threading.Event, threading.Thread]:
    stop = threading.Event()
    traffic = Traffic(plan, stop)
    thread = threading.Thread(target=traffic.run, args=(60.0,))
    thread.start()
    return traffic, stop, thread


@pytest.mark.parametrize(("poison", "least", "most"), [("none", 0.85, 1.0), ("timestamp", 0.0, 0.05)])
def test_a_timestamp_at_the_head_costs_all_reuse(engine: Engine, poison: str, least: float, most: float) -> None:
    traffic, stop, thread = started(Plan(engine.url, engine.settings.model, rate=0, poison=poison))
    assert eventually(lambda: traffic.counts["answered"] >= 60)
    stop.set()
    thread.join()
    counted = values(engine)
    assert least <= counted["hit"] / counted["queried"] <= most
    assert (traffic.counts["prompt"], traffic.counts["cached"]) == (counted["queried"], counted["hit"])
    assert traffic.counts["failed"] == 0


def test_the_same_seed_asks_the_same_questions() -> None:
    asked = [list(islice(questions(seed, session), 20)) for seed, session in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]
    assert asked[0] != asked[3]


def test_a_restart_is_told_once_and_outlived(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    traffic, stop, thread = started(Plan(engine.url, engine.settings.model, sessions=1, rate=0))
    assert eventually(lambda: traffic.counts["answered"] > 0)
    engine.switch({"restart": 0.2})
    assert eventually(lambda: traffic.counts["failed"] > 0)
    answered = traffic.counts["answered"]
    assert eventually(lambda: traffic.counts["answered"] > answered)
    stop.set()
    thread.join()
    told = capsys.readouterr().out.splitlines()
    assert len([line for line in told if "trying again" in line]) == 1
    assert told[-1].startswith(
        f"demo.traffic: {traffic.counts['answered']} answered, {traffic.counts['failed']} failed"
    )


def test_the_command_ends_on_a_signal(engine: Engine) -> None:
    command = [sys.executable, "-m", "demo.traffic", "--base-url", f"{engine.url}/v1", "--rate", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert eventually(lambda: values(engine)["prompt"] > 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
        assert process.stdout
        assert " 0 failed" in process.stdout.read()


def test_it_ends_after_its_seconds(engine: Engine) -> None:
    traffic = Traffic(Plan(engine.url, engine.settings.model, rate=100), threading.Event())
    traffic.run(0.2)
    assert traffic.counts["answered"] > 0


def test_the_shared_prompt_is_as_long_as_a_reference_text() -> None:
    assert 1900 <= len(SYSTEM_PROMPT) <= 2200
