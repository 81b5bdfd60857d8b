"""The cache finds what vLLM's finds, forgets in vLLM's order and counts its evictions exactly."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.cache import Allocation, PrefixCache, Residency
from tests.demo.client import tokens


def visit(cache: PrefixCache, prompt: Sequence[int], *extra: str) -> int:
    """Admit a prompt and let it go; return what was cached of it."""
    allocation = cache.admit(prompt, extra)
    assert allocation
    cache.release(allocation)
    return allocation.cached_tokens


@pytest.mark.parametrize(
    ("length", "again"), [(320, 288), (321, 320), (319, 288), (64, 32), (33, 32), (32, 0), (20, 0), (1, 0)]
)
def test_the_last_token_is_always_computed(length: int, again: int) -> None:
    cache = PrefixCache(64, 32)
    assert [visit(cache, tokens(length)) for _ in range(3)] == [0, again, again]


def test_only_whole_leading_blocks_are_found() -> None:
    cache = PrefixCache(64, 32)
    visit(cache, tokens(320))
    assert visit(cache, tokens(100) + [0] * 220) == 96
    assert visit(cache, [0, 0, *tokens(318)[2:]]) == 0


@pytest.mark.parametrize("kind", ["salt", "adapter"])
def test_extra_keys_keep_equal_prompts_apart(kind: str) -> None:
    cache = PrefixCache(64, 32)
    found = [visit(cache, tokens(340), f"{kind} {name}") for name in "AAB"]
    assert found == [0, 320, 0]


def test_what_is_admitted_can_be_found_at_once() -> None:
    cache = PrefixCache(64, 32)
    both = [cache.admit(tokens(340)), cache.admit(tokens(340))]
    assert [allocation and allocation.cached_tokens for allocation in both] == [0, 320]
    assert cache.held == 12  # ten shared blocks and a tail each


def test_generated_tokens_are_cached_but_for_the_last() -> None:
    cache = PrefixCache(64, 32)
    allocation = cache.admit(tokens(40))
    assert allocation
    answer = tokens(100, start=40)
    assert all(cache.append(allocation, token) for token in answer[:-1])
    cache.release(allocation)
    assert visit(cache, tokens(40) + answer) == 128


def test_a_prompt_waits_for_blocks_and_takes_none_meanwhile() -> None:
    cache = PrefixCache(4, 4)
    running = cache.admit(tokens(12))
    assert running
    assert cache.admit(tokens(8, start=50)) is None
    assert cache.held == 3
    cache.release(running)
    assert cache.admit(tokens(8, start=50))


def test_a_free_block_cannot_be_both_found_and_handed_out() -> None:
    cache = PrefixCache(4, 4)
    visit(cache, tokens(13))
    assert cache.admit(tokens(4, start=99))
    assert cache.admit(tokens(13)) is None  # three free blocks are found, the fourth is missing


def test_a_prompt_that_never_fits_is_an_error() -> None:
    with pytest.raises(ValueError, match="17 tokens need 5 blocks, the cache has 4"):
        PrefixCache(4, 4).admit(tokens(17))


def test_growth_stops_without_a_free_block() -> None:
    cache = PrefixCache(2, 4)
    allocation = cache.admit(tokens(7))
    assert allocation
    assert [cache.append(allocation, 0), cache.append(allocation, 1)] == [True, False]
    assert len(allocation.tokens) == 8


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(5, 4)
    a, b, c = (tokens(9, start) for start in (0, 80, 160))  # two full blocks and a tail each
    visit(cache, a)
    visit(cache, b)
    assert visit(cache, a) == 8
    visit(cache, c)
    assert (visit(cache, a), visit(cache, b)) == (8, 0)


def test_a_tail_goes_before_its_prefix() -> None:
    cache = PrefixCache(4, 4)
    visit(cache, tokens(16))
    visit(cache, tokens(4, start=99))
    assert cache.evictions == 1
    assert visit(cache, tokens(16)) == 12


def test_a_block_that_was_never_full_goes_before_everything_cached() -> None:
    cache = PrefixCache(4, 4)
    visit(cache, tokens(13))
    visit(cache, tokens(3, start=99))
    assert cache.evictions == 0
    assert visit(cache, tokens(13)) == 12


def test_round_robin_over_a_cache_one_prompt_too_small_finds_nothing() -> None:
    cache = PrefixCache(4, 4)
    prompts = [tokens(8, start) for start in (0, 80, 160)]
    found = [visit(cache, prompt) for _ in range(5) for prompt in prompts]
    assert sum(found) == 0
    assert cache.evictions == 2 * len(found) - 4  # the pool was empty at first


def test_equal_blocks_are_not_merged() -> None:
    cache = PrefixCache(4, 4)
    visit(cache, tokens(8))
    visit(cache, tokens(8))  # finds one block, computes the other once more
    visit(cache, tokens(4, start=99))
    visit(cache, tokens(4, start=199))
    assert cache.evictions == 1  # the older of the equal blocks
    assert visit(cache, tokens(9)) == 8


def test_reset_forgets_unless_blocks_are_held() -> None:
    cache = PrefixCache(64, 32)
    running = cache.admit(tokens(320))
    assert running
    assert not cache.reset()
    cache.release(running)
    assert cache.reset()
    assert visit(cache, tokens(320)) == 0
    assert (cache.evictions, cache.residencies) == (0, [])


def test_without_caching_and_without_reading_nothing_is_found() -> None:
    off = PrefixCache(64, 32, caching=False)
    assert [visit(off, tokens(320)) for _ in range(8)] == [0] * 8
    assert (off.evictions, off.residencies) == (0, [])
    cache = PrefixCache(64, 32)
    visit(cache, tokens(320))
    unread = cache.admit(tokens(320), read=False)
    assert unread
    assert unread.cached_tokens == 0


@pytest.mark.parametrize(("length", "again"), [(2900, 0), (5200, 3200), (9700, 8000)])
def test_a_drafter_gives_up_one_unit(length: int, again: int) -> None:
    cache = PrefixCache(16, 1600, given_up=1)
    visit(cache, tokens(length))
    assert visit(cache, tokens(length)) == again


def test_residencies_are_seconds_from_allocation_last_use_and_between_hits() -> None:
    now = [0.0]
    cache = PrefixCache(2, 4, clock=lambda: now[0])
    for now[0] in (10.0, 13.0, 18.0):  # one block is found twice, one is handed out again each time
        visit(cache, tokens(5))
    now[0] = 20.0
    visit(cache, tokens(8, start=99))
    assert cache.residencies == [
        Residency(3.0, 3.0, ()),
        Residency(5.0, 5.0, ()),
        Residency(2.0, 2.0, ()),
        Residency(10.0, 2.0, (5.0,)),
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 24), st.sampled_from("AB"), st.booleans()), max_size=60))
def test_whatever_happens_the_books_balance(steps: list[tuple[int, int, str, bool]]) -> None:
    cache, running = PrefixCache(8, 3), list[Allocation]()
    seen: set[tuple[str, tuple[int, ...]]] = set()
    stored = 0
    for start, length, salt, leave in steps:
        allocation = cache.admit(tokens(length, start * 50), (salt,))
        if allocation:
            hit = allocation.cached_tokens
            assert hit % 3 == 0
            assert hit < length
            assert not hit or (salt, tuple(allocation.tokens[:hit])) in seen
            seen |= {(salt, tuple(allocation.tokens[:end])) for end in range(3, length + 1, 3)}
            stored += (length - hit) // 3
            running.append(allocation)
        if running and (leave or not allocation):
            cache.release(running.pop(0))
        assert cache.held == len({id(block) for one in running for block in one.blocks})
    for one in running:
        cache.release(one)
    assert cache.held == 0
    assert 0 <= stored - cache.evictions <= cache.blocks
