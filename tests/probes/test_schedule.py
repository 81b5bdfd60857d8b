"""The schedule: at once, on the grid, never two at once, nothing lost silently."""

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.blocking import BlockingScheduler

from probes.schedule import Grid, Job, Schedule
from tests.inputs import CASES, expectation

START = datetime(2026, 11, 29, tzinfo=UTC)
DAY = 86_400


class Clock:
    """A clock that only moves when it is told to, in the place of `datetime`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self, _: Any = None) -> datetime:
        return START + timedelta(seconds=self.seconds)


def simulate(monkeypatch: pytest.MonkeyPatch, seconds: float, jobs: dict[str, tuple[float, float]]) -> Any:
    """Run a day of schedule in no time; `jobs` gives interval and duration. Returns run times and counted events."""
    clock = Clock()

    for module in ("apscheduler.schedulers.base", "apscheduler.executors.base", "probes.schedule"):
        monkeypatch.setattr(f"{module}.datetime", clock)
    monkeypatch.setattr("probes.schedule.ThreadPoolExecutor", lambda _: DebugExecutor())
    runs: dict[str, list[float]] = {name: [] for name in jobs}
    events: Counter[tuple[str, str]] = Counter()

    def job(name: str, interval: float, duration: float) -> Job:
        def run() -> None:
            runs[name].append(clock.seconds)
            clock.seconds += duration

        return Job(name, interval, run)

    scheduler = BlockingScheduler(timezone=UTC)
    Schedule(tuple(job(name, *times) for name, times in jobs.items()), lambda n, r: events.update([(n, r)]), scheduler)
    monkeypatch.setattr(scheduler, "_main_loop", lambda: None)
    scheduler.start()
    while clock.seconds < seconds:
        waits = scheduler._process_jobs()  # noqa: SLF001  # what its own loop calls
        clock.seconds += max(waits or 0.001, 0.001)
    return runs, events


def test_a_day_without_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, events = simulate(monkeypatch, DAY, {"vllm": (60, 3), "gateway": (600, 8)})
    assert (len(runs["vllm"]), len(runs["gateway"])) == (DAY // 60, DAY // 600)
    for name, interval in (("vllm", 60), ("gateway", 600)):
        late = [at - number * interval for number, at in enumerate(runs[name])]
        assert min(late) >= 0
        assert max(late) < 0.05 * interval + 12  # its own jitter, and the other job's run: there is one thread here
        assert max(late[-20:]) < 0.05 * interval + 12  # no later at the end of the day
    assert events == Counter()


def test_a_run_that_takes_longer_than_its_interval_leads_to_one_and_not_to_a_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, _ = simulate(monkeypatch, 3600, {"vllm": (60, 150)})
    assert len(runs["vllm"]) == pytest.approx(3600 / 150, abs=2)
    assert all(b - a >= 150 for a, b in zip(runs["vllm"], runs["vllm"][1:], strict=False))


def test_the_grid_keeps_its_phase_whatever_the_jitter() -> None:
    grid = Grid(START, 60, random.Random(1))
    at = grid.get_next_fire_time(None, START)
    for number in range(1, 2000):
        at = grid.get_next_fire_time(at, at)
        assert 0 <= (at - START).total_seconds() - 60 * number <= 3


def test_the_first_run_is_at_once_and_in_utc() -> None:
    wanted = expectation(CASES / "56-first-run-after-a-full-interval")["scheduler"]
    ran = threading.Event()
    schedule = Schedule((Job("vllm", 900, ran.set),), lambda *_: None)
    schedule.start()
    assert ran.wait(wanted["first_run_within_s"])
    assert str(schedule._scheduler.timezone) == wanted["timezone"]  # noqa: SLF001
    schedule.stop()


def test_a_blocked_run_is_counted_as_overlapped_and_the_schedule_goes_on() -> None:
    """Case 54: a run that is late is made up for or counted, never dropped in silence."""
    release, again, counted = threading.Event(), threading.Event(), threading.Event()
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        if len(runs) > 1:
            again.set()
        release.wait(10)

    def count(name: str, result: str) -> None:
        assert (name, result) == ("vllm", "overlapped")
        counted.set()

    schedule = Schedule((Job("vllm", 0.2, run),), count)
    schedule.start()
    assert counted.wait(5)
    release.set()
    assert again.wait(5)
    schedule.stop()


def test_a_job_that_breaks_is_counted_and_runs_again() -> None:
    results: list[str] = []
    twice = threading.Event()

    def count(_: str, result: str) -> None:
        results.append(result)
        if len(results) == 2:
            twice.set()

    def fail() -> None:
        raise RuntimeError

    schedule = Schedule((Job("vllm", 0.2, fail),), count)
    schedule.start()
    assert twice.wait(5)
    schedule.stop()
    assert set(results) == {"error"}


def test_one_job_does_not_wait_for_another() -> None:
    release, ran = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(10)

    schedule = Schedule((Job("hung", 60, hang), Job("well", 60, ran.set)), lambda *_: None)
    schedule.start()
    assert ran.wait(5)
    release.set()
    schedule.stop()
