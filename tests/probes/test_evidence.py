"""What follows of cycles: what the canary sent in the window, and which times count."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from exporter.scrape import Scrape
from exporter.window import Tokens
from probes.canary import Cycle, Sent
from probes.client import Endpoint, Mark, Result
from probes.config import CanaryTarget
from probes.evidence import Evidence, Reply, of_cycles
from probes.metrics import Metrics
from probes.outcome import ErrorClass, Failure, Names
from probes.plan import Arm, Planned
from tests.probes.bodies import body, pair, snap

ARMS = (Arm.RETAINED, Arm.CONTROL, Arm.REPEAT, Arm.REPEAT)
CACHED = (0, 0, 992, 992)


def scrape(queries: float, hits: float) -> Scrape:
    return Scrape("t", 0.01, snap(body(queries=queries, hits=hits, prompt=queries)))


def cycle(*cached: int | None, ttft: float = 0.1, marks: frozenset[Mark] = frozenset()) -> Cycle:
    sent = tuple(
        Sent(Planned(arm, (), 1), Result(ttft, 0.2, 1.8e9, 1000, 8, found, marks=marks))
        for arm, found in zip(ARMS, cached or CACHED, strict=True)
    )
    return Cycle("t", 1, 1.8e9, "ok", sent)


def test_the_canary_is_counted_from_the_windows_start() -> None:
    unscraped = cycle()
    cycles = [unscraped, replace(cycle(), before=scrape(0, 0)), replace(cycle(), after=scrape(9000, 2984))]
    evidence = of_cycles(cycles)
    assert (evidence.canary, evidence.canary_requests, len(evidence.replies)) == (Tokens(8000, 3968), 8, 12)
    assert of_cycles([unscraped]).canary == Tokens()


def test_a_canary_that_is_not_told_of_its_hits_says_so() -> None:
    assert of_cycles([replace(cycle(), before=scrape(0, 0))]).canary_told
    silent = replace(cycle(None, None, None, None), before=scrape(0, 0))
    assert not of_cycles([silent]).canary_told
    assert of_cycles([replace(silent, details_seen=True)]).canary_told  # older engines leave a zero out


def test_localhost_is_the_wrong_place_in_the_own_image_unless_it_has_answered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failure = Failure(ErrorClass.CONNECTION_REFUSED, "nothing listens at localhost:8000")
    gone = Cycle("t", 2, 1.8e9, "failed", failure=failure)
    assert not of_cycles([gone]).in_container  # an engine in the same container may be loading its model
    assert of_cycles([gone], in_container=True).in_container
    monkeypatch.setattr("probes.evidence.OWN_IMAGE", tmp_path)
    assert of_cycles([gone]).in_container
    assert not of_cycles([cycle(), gone]).in_container


def test_an_answer_that_was_held_back_is_not_timed_and_a_short_one_is() -> None:
    metrics = Metrics([CanaryTarget("t", Endpoint("http://a:1"), Names(), None, 60.0, 10**9, 5.0, 1.0)])
    held_back, short = (
        cycle(ttft=ttft, marks=frozenset({mark})) for ttft, mark in ((9.0, Mark.BUFFERED), (0.5, Mark.CAPPED))
    )
    metrics.take(short)
    assert 'apc_canary_last_ttft_seconds{arm="repeat",target="t"} 0.5' in generate_latest(metrics.registry).decode()
    metrics.take(held_back)
    text = generate_latest(metrics.registry).decode()
    assert "apc_canary_last_ttft_seconds{" not in text
    assert 'apc_canary_ttft_seconds_count{arm="repeat",target="t"} 2.0' in text
    assert 'apc_canary_ttft_seconds_sum{arm="repeat",target="t"} 1.0' in text
    assert 'apc_canary_requests_total{arm="repeat",target="t"} 4.0' in text
    assert [reply.ttft for reply in of_cycles([held_back, short]).replies] == [None] * 4 + [0.5] * 4


def test_the_mean_prompt_is_the_windows_and_without_the_canary() -> None:
    window = pair(queries=9000, hits=0, prompt=9000, requests=9)
    assert Evidence(*window).mean_prompt == 1000
    assert Evidence(*window, canary=Tokens(3000, 0), canary_requests=3).mean_prompt == 1000
    lengths = pair(queries=9000, hits=0, lengths_sum=9000, lengths=3)
    assert Evidence(*lengths).mean_prompt == 3000
    assert Evidence(after=lengths[1]).mean_prompt == 3000


@pytest.mark.parametrize(
    ("cached", "length", "hit"),
    [
        (1984, 2003, True),
        (16, 2003, False),
        (900, 2003, False),
        (1008, 2003, True),
        (0, 2003, False),
        (1984, None, True),
    ],
)
def test_half_of_what_is_found_at_best_is_a_hit(cached: int, length: int | None, hit: bool) -> None:
    reply = Reply(length, cached)
    assert Evidence(replies=(reply, Reply(2003, 1984))).hit(reply) is hit


def test_a_head_that_all_prompts_have_is_no_hit_even_if_nothing_else_is_found() -> None:
    evidence = Evidence(replies=(Reply(2003, 16), Reply(2003, 16)))
    assert evidence.reuse is False


def test_a_ratio_since_the_start_that_repeated_lookups_made_is_none() -> None:
    assert Evidence(after=snap(body(queries=1000, hits=500, prompt=1000))).lifetime_ratio == 0.5
    assert Evidence(after=snap(body(queries=361500, hits=180000, prompt=6000))).lifetime_ratio is None
