"""Field reports and the verdict that each must get, and what it must not say."""

import csv
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from exporter.read import read
from exporter.scrape import Reason, ScrapeError
from exporter.snapshot import Snapshot
from probes import divergence
from probes.evidence import Evidence, Reply
from probes.judge import judge
from probes.outcome import ErrorClass, Failure
from probes.plan import Arm
from probes.verdict import Severity, Verdict
from tests.inputs import CASES, cases, expectation
from tests.probes.replay import ask, of_file


def snap(case: Path, name: str) -> Snapshot | None:
    path = case / name
    return read(path.read_bytes()) if path.exists() else None


def table(case: Path, name: str = "canary.csv") -> tuple[Reply, ...]:
    """Return a case's table of prompts that were each sent again."""
    lines = [line for line in (case / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    return tuple(Reply(int(row["prompt_tokens"]), int(row["cached_tokens"]), same=True) for row in rows)


def bodies(case: Path, suffix: str = "") -> Evidence:
    return Evidence(snap(case, f"t0{suffix}.prom"), snap(case, f"t1{suffix}.prom"))


def failed(error_class: ErrorClass, message: str) -> Evidence:
    return Evidence(failure=Failure(error_class, message))


def evicted(case: Path) -> Evidence:
    rows = [json.loads(line) for line in (case / "canary.jsonl").read_text(encoding="utf-8").splitlines()]
    arms = {1: Arm.RETAINED, 2: Arm.REPEAT}
    return Evidence(
        replies=tuple(
            Reply(2003, row["cached_tokens"], arm=arms[row["sighting"]], judged=row["run"] > 1 or row["sighting"] > 1)
            for row in rows
        )
    )


def never_told(case: Path) -> Evidence:
    return Evidence(replies=tuple(Reply(2003, None) for _ in json.loads((case / "sequence_never.json").read_text())))


def midnight(case: Path) -> Evidence:
    rows = json.loads((case / "midnight.json").read_text(encoding="utf-8"))
    return Evidence(
        replies=tuple(Reply(2003, row["cached_tokens"], at=datetime.fromisoformat(row["at"])) for row in rows)
    )


def two_prompts(case: Path) -> Evidence:
    left, right = prompts(json.loads((case / "prompts.json").read_text(encoding="utf-8")))
    return Evidence(divergence=divergence.compare(left, right))


def prompts(found: Any) -> list[str]:
    return list(found.values()) if isinstance(found, dict) else list(found)


def unusable(case: Path) -> Evidence:
    with pytest.raises(ScrapeError) as raised:
        read((case / "python_only.prom").read_bytes())
    return Evidence(scrape_error=raised.value, replies=(Reply(2003, 1984), Reply(2003, 1984)))


def proxied(case: Path) -> Evidence:
    return Evidence(failure=ask(of_file(case / "proxy_answer.json")).failure)


Build = Callable[[Path], Evidence]
EVIDENCE: dict[tuple[str, str], Build] = {
    ("01", "doctor"): bodies,
    ("02", "doctor"): lambda case: Evidence(replies=table(case)),
    ("03", "doctor"): lambda case: Evidence(after=snap(case, "t1.prom"), replies=table(case)),
    ("05", "doctor"): lambda case: Evidence(after=snap(case, "t1.prom"), replies=table(case)),
    ("05", "doctor_regression"): lambda case: Evidence(
        after=snap(case, "t1.prom"), replies=table(case, "canary_regression.csv")
    ),
    ("06", "doctor"): bodies,
    ("08", "doctor"): bodies,
    ("08", "doctor_b"): lambda case: bodies(case, "_b"),
    ("09", "doctor"): bodies,
    ("16", "doctor"): bodies,
    ("19", "doctor"): unusable,
    ("44", "doctor"): lambda _: failed(ErrorClass.HTML_LOGIN, "gateway.example answered with a login page"),
    ("48", "doctor"): two_prompts,
    ("48", "doctor_midnight"): midnight,
    ("51", "doctor"): proxied,
    ("52", "doctor"): evicted,
}
ELSEWHERE = {("49", "doctor")}  # token ids: test_divergence.py
PARAMS = [
    pytest.param(case, key, id=f"{case.name}-{key}")
    for case in sorted({case for area in ("doctor", "doctor_b", "doctor_midnight") for case in cases(area)})
    for key in expectation(case)
    if key.startswith("doctor") and "code" in expectation(case)[key] and (case.name[:2], key) not in ELSEWHERE
]


@pytest.mark.parametrize(("case", "key"), PARAMS)
def test_case(case: Path, key: str) -> None:
    wanted: dict[str, Any] = expectation(case)[key]
    verdicts = judge(EVIDENCE[case.name[:2], key](case))
    first = verdicts[0]
    assert first.code == wanted["code"].lower(), verdicts
    for name in wanted.keys() - {"code", "must_not_say", "when", "input"}:
        assert first.numbers[name] == wanted[name], name
    told = " ".join(f"{verdict.sentence} {verdict.remedy}" for verdict in verdicts)
    for words in wanted.get("must_not_say", []):
        assert words not in told


def test_usage_details_off() -> None:
    case = CASES / "37-cached-tokens-zero-or-missing"
    wanted = expectation(case)["probe"]["sequence_never.json"]
    (verdict,) = judge(never_told(case))
    assert verdict.code == wanted["doctor"].lower()
    assert verdict.numbers["hint"] == wanted["hint"]
    assert wanted["hint"] in verdict.remedy


def test_unreachable_from_a_container() -> None:
    codes = expectation(CASES / "59-host-docker-internal-on-linux")["doctor"]["codes"]
    refused = ErrorClass.CONNECTION_REFUSED
    told = {
        "name_not_found": judge(failed(ErrorClass.DNS, "the name vllm is not known here")),
        "refused_localhost": judge(
            Evidence(failure=Failure(refused, "nothing listens at localhost:8000"), in_container=True)
        ),
        "refused_host_gateway": judge(
            Evidence(failure=Failure(refused, "nothing listens at host.docker.internal:8000"), in_container=True)
        ),
    }
    assert {name: [verdict.code.upper() for verdict in verdicts] for name, verdicts in told.items()} == {
        name: [code] for name, code in codes.items()
    }


def test_an_adapter_has_a_cache_of_its_own() -> None:
    """Case 15: the first sighting of an adapter is cold and not judged."""
    case = CASES / "15-lora-has-own-key"
    rows = [json.loads(line) for line in (case / "canary.jsonl").read_text(encoding="utf-8").splitlines()]
    replies = tuple(
        Reply(r["prompt_tokens"], r["cached_tokens"], judged=r["sighting"] > 1, model=r["model"]) for r in rows
    )
    assert [verdict.severity for verdict in judge(Evidence(replies=replies))] == [Severity.OK]


def test_a_lifetime_ratio_never_stands_for_the_window() -> None:
    """Case 22: 89 % since the start, nothing in the window: no verdict of health."""
    case = CASES / "22-lifetime-vs-window"
    assert "healthy" not in {verdict.code for verdict in judge(bodies(case))}


def test_an_idle_server_is_no_fault() -> None:
    """Case 23, and 36 where only the canary talks."""
    assert worst(judge(bodies(CASES / "23-no-traffic-is-not-zero"))) >= Severity.UNKNOWN


def worst(verdicts: list[Verdict]) -> Severity:
    return min(verdict.severity for verdict in verdicts)


def test_refused_while_loading_is_starting_or_down() -> None:
    evidence = Evidence(scrape_error=ScrapeError(Reason.REFUSED, "nothing listens at localhost:8000"))
    (verdict,) = judge(evidence)
    assert verdict.code == "starting_or_down"


def test_every_verdict_has_a_sentence_and_a_remedy() -> None:
    for (number, _), build in EVIDENCE.items():
        (case,) = CASES.glob(f"{number}-*")
        for verdict in judge(build(case)):
            assert verdict.sentence.endswith((".", ")"))
            assert len(verdict.remedy) > 5
            assert "\n" not in verdict.sentence + verdict.remedy
