"""The fault lab: faults of many kinds at once, on the real stack; the right alert, and only it, is told and resolved.

Time runs fifteen times faster. What needs an hour of the past (ApcTtftRegression, ApcNeverHits) is left to promtool,
and so is what brings other faults with it or cannot be brought about (ApcKvCachePressure, ApcSignalsContradict,
ApcProbeStale, ApcRuleEvaluationFailing).
"""

import time
from dataclasses import dataclass, field

import pytest

from native.report import table
from tests.stack.lab import GENERATIONS, Lab, lab
from tests.stack.receiver import Notice
from tests.stack.scenarios import FAULTS, HEALTHY, SCENARIOS, Scenario

WARM_SECONDS = 120.0  # half an hour of healthy traffic
TELL_SECONDS = 150.0
END_SECONDS = 120.0
PROGRAMS = {"probe": "ApcProbeDown", "exporter": "ApcExporterDown"}
RESTARTING = "restarting"


@dataclass
class Played:
    """When each fault began, by target or program (monotonic seconds), and all that was told."""

    began: dict[str, float] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)

    def of(self, generation: str, target: str) -> list[Notice]:
        return [notice for notice in self.notices if (notice.sender, notice.target) == (generation, target)]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Played:
    """Play all of it once, and print the table."""
    found = Played()
    with lab(tmp_path_factory.mktemp("lab"), {scenario.target: scenario.flags for scenario in SCENARIOS}) as stack:
        _warm_up(stack, found)
        _break(stack, found)
        for program, alert in PROGRAMS.items():
            found.began[program] = time.monotonic()
            _stop_and_start(stack, program, alert)
        found.notices = list(stack.receiver.notices)
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{report(found)}")
    return found


def _warm_up(stack: Lab, found: Played) -> None:
    """Healthy traffic, with an engine that restarts and an exporter that is replaced."""
    end = time.monotonic() + WARM_SECONDS
    for scenario in SCENARIOS:
        stack.send(scenario.target, *scenario.traffic)
        if scenario.at_once:
            found.began[scenario.target] = time.monotonic()
    stack.stop_program("exporter")
    stack.start_program("exporter")
    stack.receiver.await_until(lambda: False, (end - time.monotonic()) / 2)
    stack.start_engine(RESTARTING)
    stack.receiver.await_until(lambda: False, end - time.monotonic())


def _break(stack: Lab, found: Played) -> None:
    """Begin every fault, end each when it is told, and wait until all is told to be over."""
    for scenario in FAULTS:
        if not scenario.at_once:
            found.began[scenario.target] = time.monotonic()
            _begin(stack, scenario)
    stack.start_engine(RESTARTING)
    waiting = {scenario.target: scenario for scenario in FAULTS}
    deadline = time.monotonic() + TELL_SECONDS

    def told() -> list[str]:
        return [target for target, scenario in waiting.items() if _is(stack, scenario, "firing")]

    while waiting and stack.receiver.await_until(lambda: bool(told()), deadline - time.monotonic()):
        for target in told():
            _end(stack, waiting.pop(target))
    for scenario in waiting.values():
        _end(stack, scenario)
    stack.receiver.await_until(lambda: all(_is(stack, each, "resolved") for each in FAULTS), END_SECONDS)


def _stop_and_start(stack: Lab, program: str, alert: str) -> None:
    def everywhere(state: str) -> bool:
        return all(_state(stack, generation, "", alert) == state for generation in GENERATIONS)

    stack.stop_program(program)
    stack.receiver.await_until(lambda: everywhere("firing"), END_SECONDS)
    stack.start_program(program)
    stack.receiver.await_until(lambda: everywhere("resolved"), END_SECONDS)


def _begin(stack: Lab, scenario: Scenario) -> None:
    if scenario.restarted is not None:
        stack.start_engine(scenario.target, scenario.restarted)
    if scenario.faults:
        stack.switch(scenario.target, **scenario.faults)
    if scenario.then is not None:
        stack.send(scenario.target, *scenario.then)


def _end(stack: Lab, scenario: Scenario) -> None:
    """Make the target healthy: by a restart where the fault has ended the engine or is in its flags."""
    if scenario.restarted is not None or scenario.at_once or "restart" in scenario.faults:
        stack.start_engine(scenario.target, ())
    else:
        stack.switch(scenario.target, **dict.fromkeys(scenario.faults))
    stack.send(scenario.target, *scenario.traffic[:1])


def _is(stack: Lab, scenario: Scenario, state: str) -> bool:
    return all(_state(stack, g, scenario.target, alert) == state for g in GENERATIONS for alert in scenario.told)


def _state(stack: Lab, generation: str, target: str, alert: str) -> str:
    found = [n.status for n in stack.receiver.notices if (n.sender, n.target, n.alert) == (generation, target, alert)]
    return found[-1] if found else ""


def report(found: Played) -> str:
    """Return the table: seconds are evaluation intervals, since both are one second."""
    rows: list[tuple[str, ...]] = [("FAULT", "ALERT", "EVALUATIONS TO NOTIFY", "FALSE ALARMS")]
    cases = [(s.target, s.target, s.means, s.told) for s in SCENARIOS]
    cases += [(program, "", f"the {program} is stopped", frozenset({alert})) for program, alert in PROGRAMS.items()]
    for begun, target, means, told in cases:
        firing = [(g, n) for g in GENERATIONS for n in found.of(g, target) if n.status == "firing"]
        took = [f"{n.at - found.began[begun]:.0f}" for _, n in firing if n.alert in told and begun in found.began]
        false = {n.alert for _, n in firing if n.alert not in (told or set(PROGRAMS.values()) - told)}
        shown = false if target else false - set(PROGRAMS.values())
        rows.append(
            (means, ", ".join(sorted(told)) or "-", " / ".join(took) or "-", ", ".join(sorted(shown)) or "none")
        )
    return table(rows)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("scenario", FAULTS, ids=lambda scenario: scenario.target)
def test_a_fault_is_told_by_its_alert_and_no_other_and_resolves(
    played: Played, scenario: Scenario, generation: str
) -> None:
    notices = played.of(generation, scenario.target)
    assert {notice.alert for notice in notices} == scenario.told
    assert [notice.status for notice in notices] == ["firing", "resolved"] * len(scenario.told)
    assert notices[0].at > played.began[scenario.target]


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda scenario: scenario.target)
def test_what_is_no_fault_is_not_told(played: Played, scenario: Scenario, generation: str) -> None:
    assert played.of(generation, scenario.target) == []


@pytest.mark.parametrize("generation", GENERATIONS)
def test_programs_of_the_stack_are_told_of_and_nothing_else_is(played: Played, generation: str) -> None:
    told = [(notice.alert, notice.status) for notice in played.of(generation, "")]
    assert told == [(alert, status) for alert in PROGRAMS.values() for status in ("firing", "resolved")]
