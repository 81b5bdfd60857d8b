"""Runs jobs at their intervals: the first at once, never two of one job at once, none lost silently.

The only user of APScheduler.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

log = logging.getLogger(__name__)

START_SPREAD: Final = 2.0  # seconds over which the first runs of several jobs are spread
JITTER_SHARE: Final = 0.05  # of the interval, at most: keeps canaries out of step with periodic traffic
EVENTS: Final = {EVENT_JOB_MISSED: "missed", EVENT_JOB_MAX_INSTANCES: "overlapped", EVENT_JOB_ERROR: "error"}


@dataclass(frozen=True, slots=True)
class Job:
    """What to run, every how many seconds."""

    name: str
    interval: float
    run: Callable[[], None]


class Grid(BaseTrigger):  # type: ignore[misc]  # APScheduler is untyped
    """Fires at start + n intervals + jitter; the jitter of one run does not shift the next."""

    def __init__(self, start: datetime, interval: float, chance: random.Random) -> None:
        self._start = start
        self._interval = interval
        self._chance = chance

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:  # noqa: ARG002
        """Return when to run next; the jitter is less than half an interval, so rounding finds the grid again."""
        if previous_fire_time is None:
            return self._start
        number = round((previous_fire_time - self._start).total_seconds() / self._interval) + 1
        offset = number * self._interval + self._chance.uniform(0, JITTER_SHARE * self._interval)
        return self._start + timedelta(seconds=offset)


class Schedule:
    """Runs the jobs until stopped; `count(job, result)` hears of runs that were missed, overlapped or broke."""

    def __init__(
        self, jobs: tuple[Job, ...], count: Callable[[str, str], None], scheduler: BaseScheduler | None = None
    ) -> None:
        self._count = count
        self._scheduler = scheduler or BackgroundScheduler(timezone=UTC)
        self._scheduler.add_executor(ThreadPoolExecutor(len(jobs)))
        self._scheduler.add_listener(self._hear, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR)
        chance = random.Random()  # noqa: S311  # spreads load
        for number, job in enumerate(jobs):
            start = datetime.now(UTC) + timedelta(seconds=number * START_SPREAD / len(jobs))
            self._scheduler.add_job(
                job.run,
                Grid(start, job.interval, chance),
                id=job.name,
                coalesce=True,
                max_instances=1,
                misfire_grace_time=max(1, round(job.interval)),
                next_run_time=start,
            )

    def start(self) -> None:
        """Begin; returns at once."""
        self._scheduler.start()

    def stop(self) -> None:
        """Start no further run; runs under way are not waited for."""
        self._scheduler.shutdown(wait=False)

    def _hear(self, event: JobEvent) -> None:
        if event.code == EVENT_JOB_ERROR:
            log.error("the canary of %s broke: %s", event.job_id, type(event.exception).__name__)
        self._count(event.job_id, EVENTS[event.code])
