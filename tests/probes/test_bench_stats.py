"""The statistics of the bench, its plots, and the plan of its requests."""

import random
import statistics
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace

import pytest

from probes.bench import stats, steps
from probes.bench.plot import Point, Series, plot
from probes.bench.steps import MODES, PROFILES, Arm, Kind, Writer
from probes.plan import Calibration

WRITER = Writer("seed", Calibration(per_word=2.0))
SMALL = replace(PROFILES["full"], repetitions=2, clients=(1, 4), turns=3)


def test_few_samples_have_no_interval() -> None:
    found = stats.median([3.0, 1.0, 2.0, 5.0, 4.0])
    assert found == stats.Estimate(3.0, None, None, 5)
    assert stats.median([]) is None


def test_an_interval_is_repeatable_and_holds_the_value() -> None:
    samples = [float(number) for number in range(20)]
    first, second = stats.median(samples), stats.median(samples)
    assert first == second
    assert first
    assert first.low is not None
    assert first.high is not None
    assert 0 < first.low < first.value < first.high < 19


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    chance = random.Random(7)
    covered = 0
    for _ in range(100):
        found = stats.median([chance.gauss(100, 10) for _ in range(15)])
        assert found
        covered += (found.low or 0) <= 100 <= (found.high or 0)
    assert 86 <= covered <= 100


def test_a_paired_change_is_not_widened_by_what_moves_both() -> None:
    pairs = [(0.5 * base, base) for base in (10.0, 40.0, 20.0, 80.0, 30.0, 60.0, 25.0)]
    assert stats.paired_change(pairs) == stats.Estimate(-0.5, -0.5, -0.5, 7)
    assert stats.paired_change([]) is None


def test_groups_are_pooled_and_drawn_in_pairs() -> None:
    groups = [([base + 1, base + 2, base + 3], [base, base + 1, base + 2]) for base in (10, 40, 20, 80, 30, 60)]
    assert stats.pooled_median([ours for ours, _ in groups[:3]]) == stats.Estimate(22, None, None, 3)
    assert stats.pooled_difference(groups) == stats.Estimate(1, 1, 1, 6)
    found = stats.pooled_change([([1.0, 2.0, 3.0], [4.0, 5.0])] * 6)
    assert found == stats.Estimate(2 / 4.5 - 1, 2 / 4.5 - 1, 2 / 4.5 - 1, 6)


def test_requests_of_a_burst_are_no_evidence_of_their_own() -> None:
    chance = random.Random(5)
    one_by_one = by_burst = 0
    for _ in range(60):
        disturbed = [100 + chance.gauss(0, 10) for _ in range(10)]
        bursts = [[level + chance.gauss(0, 3) for _ in range(8)] for level in disturbed]
        apart, together = stats.median([one for burst in bursts for one in burst]), stats.pooled_median(bursts)
        assert apart
        assert together
        one_by_one += (apart.low or 0) <= 100 <= (apart.high or 0)
        by_burst += (together.low or 0) <= 100 <= (together.high or 0)
    assert one_by_one < 45
    assert by_burst >= 52


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 2.5), (0.95, 3.85), (1, 4)])
def test_quantile(share: float, expected: float) -> None:
    assert stats.quantile([4, 1, 3, 2], share) == pytest.approx(expected)


def test_the_article_s_prompt() -> None:
    text = WRITER.reference("article/0", 2800)
    assert len(text.split()) == 1400
    assert text.count(".") == 40
    assert text == WRITER.reference("article/0", 2800)
    assert text.split()[:8] != WRITER.reference("article/1", 2800).split()[:8]


@pytest.mark.parametrize("percent", [0, 25, 50, 100])
def test_a_shared_part_is_a_true_prefix(percent: int) -> None:
    base = WRITER.reference("base", 1000, "base", 1)
    text = WRITER.reference("other", 1000, "base", percent / 100)
    same = [ours == theirs for ours, theirs in zip(text.split(), base.split(), strict=True)]
    assert all(same[: 5 * percent])
    assert sum(same[5 * percent :]) < 0.2 * max(1, len(same[5 * percent :])) or percent == 100


def test_every_mode_is_planned_and_both_arms_get_the_same() -> None:
    made = steps.stages(SMALL, WRITER)
    asks = [ask for stage in made for batch in stage.batches for ask in batch.asks]
    assert {ask.mode for ask in asks} == set(MODES)
    for mode in ("article", "length", "load", "chat"):
        of = {arm: Counter(str(ask.messages) for ask in asks if ask.mode == mode and ask.arm is arm) for arm in Arm}
        assert of[Arm.ON] == of[Arm.OFF]
    article = [ask for ask in asks if ask.mode == "article" and ask.arm is Arm.ON]
    assert [ask.at for ask in article] == [1, 2, 3, 4, 5] * 2
    assert len({str(ask.messages[0]) for ask in article}) == 2
    assert max(batch.width for stage in made for batch in stage.batches) == 4


def test_the_arms_take_turns_at_being_first() -> None:
    made = steps.stages(replace(SMALL, modes=("article",), repetitions=6), WRITER)
    firsts = [batch.asks[0].arm for stage in made for batch in stage.batches[::2]]
    assert statistics.fmean(arm is Arm.ON for arm in firsts) == 0.5


def test_every_mode_is_spread_over_the_run() -> None:
    made = steps.stages(replace(SMALL, modes=("article", "floor", "load")), WRITER)
    assert [stage.name for stage in made] == ["article", "floor, cold", "floor, warm", "load, 1", "load, 4"] * 2


def test_load_sends_enough_for_a_95th_percentile() -> None:
    for repetitions, clients, each in ((1, 4, 20), (6, 4, 8), (10, 1, 2), (10, 64, 128)):
        profile = replace(SMALL, modes=("load",), repetitions=repetitions, clients=(clients,))
        sizes = {len(batch.asks) for stage in steps.stages(profile, WRITER) for batch in stage.batches}
        assert sizes == {1, each}


def test_a_chat_grows_by_what_was_said() -> None:
    (stage,) = steps.stages(replace(SMALL, modes=("chat",), repetitions=1), WRITER)
    asks = [ask for batch in stage.batches for ask in batch.asks if ask.arm is Arm.ON]
    assert [ask.kind for ask in asks] == [Kind.COLD, Kind.WARM, Kind.WARM]
    assert asks[2].messages[: len(asks[1].messages)] == asks[1].messages


def test_a_plot_is_well_formed_and_escapes() -> None:
    points = (Point(1, 10, 9, 12), Point(64, 30))
    drawn = plot("a <b>", "x", "y", [Series("on & off", points), Series("none", ())], by_rank=True)
    root = ET.fromstring(drawn)
    assert len(root.findall(".//circle")) == 2
    assert "a &lt;b&gt;" in drawn
    assert "on &amp; off" in drawn
    assert plot("t", "x", "y", []) == ""
