"""What happened between two answers, where they are odd or do not fit together."""

import pytest

from exporter.engine import Unit
from exporter.window import Quality, State, Tokens, Window, lifetime_hit_ratio, window
from tests.exporter.bodies import PAIR, by_source, ranks, snap
from tests.inputs import capture


def test_counters_that_fall_are_a_restart_and_no_number() -> None:
    before, after = snap(PAIR), snap(PAIR.replace("100", "50"))
    assert window(before, after) == Window(State.RESTARTED)


def test_a_new_start_time_is_a_restart_even_when_counters_rose() -> None:
    start = "process_start_time_seconds {}\n"
    before, after = snap(PAIR + start.format(1)), snap(PAIR.replace("100", "900") + start.format(2))
    assert window(before, after) == Window(State.RESTARTED)


def test_repeated_lookups_do_not_lower_the_ratio_where_prompt_tokens_are_counted() -> None:
    """0.16 to 0.26 look a waiting request up in each step: 361,500 lookups for 6,000 tokens."""
    before, after = (without_start(capture(f"v0.16.0__{name}")) for name in ("fresh", "eviction"))
    after = after.replace('source="local_cache_hit"} 0.0', 'source="local_cache_hit"} 1500.0')
    found = window(snap(before), snap(after))
    assert (found.queries, found.prompt, found.hit_ratio, found.quality) == (361_500, 6000, 0.25, "exact")


def test_a_ratio_above_one_is_none() -> None:
    """Hits stay below queries, and more prompt tokens are cached than there were."""
    before, after = ranks("0 0 0") + by_source(0, 0, 0), ranks("10000 8000 4000") + by_source(0, 0, 5000)
    assert window(snap(before), snap(after)) == Window(State.INVALID)


@pytest.mark.parametrize("broken", ["1000 NaN 1000", "1000 - 1000", "NaN 900 1000", "- 900 1000"])
def test_a_rank_with_half_a_pair_is_in_neither_sum(broken: str) -> None:
    before, after = snap(ranks("0 0 0", "0 0 0")), snap(ranks(broken, "500 100 500"))
    found = window(before, after)
    assert (found.queries, found.hits, found.prompt, found.hit_ratio) == (500, 100, 500, 0.2)
    assert lifetime_hit_ratio(after) == 0.2


def test_a_rank_that_cannot_be_judged_skips_no_lookups() -> None:
    before, after = ranks("0 0 0", "0 0 0"), ranks("1000 NaN 1000", "0 0 0")
    assert window(snap(before), snap(after)).state is State.NO_TRAFFIC


def test_each_rank_gives_the_pair_that_it_counts() -> None:
    """One rank's prompt tokens by source are broken: its lookups stand in, and it is not taken for a rank of misses."""
    before = ranks("0 0 0", "0 0 0") + by_source(0, 0, 0) + by_source(1, 0, 0)
    after = (
        ranks("1000 900 1000", "3000 0 1000") + by_source(0, 100, 900).replace(" 900", " NaN") + by_source(1, 1000, 0)
    )
    assert window(snap(before), snap(after)).hit_ratio == 900 / 2000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            ranks("10 0 10") + by_source(0, 5, 5),
            ranks("20 0 20") + by_source(0, 19, 1),
        ),
        (PAIR + "vllm:num_preemptions_total 9\n", PAIR.replace("100", "300") + "vllm:num_preemptions_total 1\n"),
        (ranks("10 5 10", "10 5 10"), ranks("90 50 90", "5 1 5")),
    ],
    ids=["cached", "preemptions", "one rank"],
)
def test_any_counter_that_falls_is_a_restart(before: str, after: str) -> None:
    assert window(snap(before), snap(after)) == Window(State.RESTARTED)


def test_another_unit_is_a_restart() -> None:
    """As after an upgrade from 0.8 to 0.9, where the engine does not tell when it started."""
    blocks = snap(PAIR.replace("vllm:", "vllm:gpu_"))
    assert blocks.caches[0].unit is Unit.BLOCKS
    assert window(blocks, snap(PAIR.replace("00", "0000"))) == Window(State.RESTARTED)


def test_the_canarys_tokens_are_taken_off_what_is_counted() -> None:
    before, after = ranks("0 0 0") + by_source(0, 0, 0), ranks("100000 4000 10000") + by_source(0, 6000, 4000)
    found = window(snap(before), snap(after), Tokens(5000, 3000))
    assert (found.queries, found.hits, found.prompt, found.hit_ratio) == (95_000, 1000, 5000, 0.2)
    assert found.quality is Quality.EXACT


def without_start(text: str) -> str:
    """Take the start time out, so that two engines pass for one."""
    return "".join(line for line in text.splitlines(keepends=True) if "process_start_time" not in line)
