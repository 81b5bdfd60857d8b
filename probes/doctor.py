"""The doctor: step by step from the settings to a verdict, live; or a verdict from saved files."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from probes import logs, saved
from probes.canary import Canary, Cycle
from probes.config import CanaryTarget
from probes.evidence import Evidence, of_cycles, within_container
from probes.judge import judge
from probes.plan import Arm
from probes.saved import InputError
from probes.verdict import Severity, Verdict

__all__ = ["CYCLES", "InputError", "Report", "examine", "from_files", "read_log"]

CYCLES: Final = 3
Tick = Callable[[str, bool, str], None]


@dataclass
class Report:
    """What the doctor saw and concluded. `steps` are name, whether it went well, and what was seen."""

    target: str = ""
    steps: list[tuple[str, bool, str]] = field(default_factory=list)
    cycles: list[Cycle] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    log: logs.LogFacts | None = None
    log_note: str = ""
    window_note: str = ""

    @property
    def found_fault(self) -> bool:
        """Whether something is to be done."""
        return any(verdict.severity in {Severity.FAULT, Severity.WARNING} for verdict in self.verdicts)


def examine(target: CanaryTarget, tick: Tick, log: logs.LogFacts | None = None, pause: float = 0.0) -> Report:
    """Send canary cycles to a live target and judge; `tick` hears of each step as it is done.

    `pause` is the seconds between two cycles, in which other traffic can push the prefix out.
    """
    report = Report(target.name, log=log)

    def step(name: str, good: bool, seen: str) -> bool:
        report.steps.append((name, good, seen))
        tick(name, good, seen)
        return good

    budget = 10**9 if target.engine else target.tokens_per_minute  # a gateway costs money
    canary = Canary(replace(target, interval=max(target.interval, 60.0), tokens_per_minute=budget))
    try:
        for cycle in _cycles(canary, pause):
            report.cycles.append(cycle)
            if len(report.cycles) == 1 and not _first_steps(cycle, target, step):
                break
            step(f"canary cycle {len(report.cycles)}", cycle.result == "ok", _told(cycle))
            if cycle.result != "ok":
                break
    finally:
        canary.close()
    last = report.cycles[-1]
    _conclude(
        report,
        of_cycles(report.cycles, log, in_container=within_container()),
        last.started_at - report.cycles[0].started_at if len(report.cycles) > 1 else None,
    )
    return report


def _conclude(report: Report, evidence: Evidence, interval: float | None) -> None:
    report.verdicts = judge(evidence)
    organic = evidence.organic
    if organic and organic.queries is not None:
        rate = f" ({organic.queries / interval:,.0f} a second)" if interval else ""
        ratio = f", {organic.hit_ratio:.1%}" if organic.hit_ratio is not None else ""
        found = f"{organic.hits or 0:,.0f} found{ratio}"
        report.window_note = (
            f"The traffic's {organic.unit} looked up in the window: {organic.queries:,.0f}{rate}; {found}."
        )
    if report.log:
        report.log_note = logs.difference(report.log.rates, evidence.found_share)


def _cycles(canary: Canary, pause: float) -> Iterator[Cycle]:
    for number in range(CYCLES):
        time.sleep(pause if number else 0)
        yield canary.run()


def _first_steps(cycle: Cycle, target: CanaryTarget, step: Callable[[str, bool, str], bool]) -> bool:
    """Report what the first cycle found on its way to the first reply; False ends the examination."""
    url = target.endpoint.base_url
    failure = cycle.failure
    if not step("the API is reachable", failure is None or bool(cycle.sent), failure.message if failure else url):
        return False
    if cycle.listing:
        step("the list of models", True, f"fails alone, and is done without: {cycle.listing.message}")
    scrape = cycle.before
    if scrape is None:
        step("metrics", True, "none: only the API of this target is in reach")
    elif scrape.snapshot is None:
        step("metrics", False, str(scrape.error))
    else:
        caches = scrape.snapshot.caches
        facts = caches[0].facts if caches else None
        about = f"{scrape.snapshot.dialect or 'engine'} {scrape.snapshot.version}, {len(caches)} cache(s)"
        step("metrics", True, f"{about}, unit {cycle.unit} tokens")
        if facts and facts.prefix_caching_enabled is not None:
            step(
                "prefix caching, as stated",
                facts.prefix_caching_enabled,
                "on" if facts.prefix_caching_enabled else "off",
            )
        if scrape.healthy is not None:
            step("/health", scrape.healthy, "200" if scrape.healthy else "no 200")
    return True


def _told(cycle: Cycle) -> str:
    if cycle.failure:
        return f"{cycle.failure.error_class}: {cycle.failure.message}"
    if cycle.note:
        return f"not sent: {cycle.note}"
    cold = [f"{r.ttft * 1000:.0f} ms" for r in cycle.of(Arm.CONTROL) if r.ttft is not None]
    warm = [f"{r.ttft * 1000:.0f} ms" for r in cycle.of(Arm.REPEAT) if r.ttft is not None]
    cached = [str(cycle.cached(r)) if cycle.cached(r) is not None else "?" for r in cycle.of(Arm.REPEAT)]
    return f"cold {', '.join(cold)}; warm {', '.join(warm)}; cached {', '.join(cached)}"


def from_files(files: Mapping[str, Any]) -> Report:
    """Judge saved files; `files` has the options of the command line.

    `before`, `after`, `canary` and `log` are paths, `prompt` two of them, `interval` the seconds between before
    and after. Raises InputError for a file that cannot be used.
    """
    log = read_log(files["log"]) if files.get("log") else None
    before, after, error = saved.snapshots(files.get("before"), files.get("after"))
    sent = saved.canaries(files["canary"]) if files.get("canary") else saved.Canaries()
    between = sent if before and after else saved.Canaries()
    evidence = Evidence(
        before=before,
        after=after,
        canary=between.tokens,
        canary_requests=between.requests,
        canary_told=between.told,
        scrape_error=error,
        replies=sent.replies,
        log=log,
        divergence=saved.compared(files["prompt"]) if files.get("prompt") else None,
    )
    report = Report("files", log=log)
    _conclude(report, evidence, files.get("interval"))
    return report


def read_log(path: str) -> logs.LogFacts:
    """Read the facts of a server log; raises InputError."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            return logs.read(lines)
    except OSError as error:
        raise InputError(f"--log: {path} cannot be read: {error.strerror}") from None
