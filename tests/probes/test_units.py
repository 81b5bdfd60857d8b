import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.units import drafted, explain, plain
from tests.inputs import CASES


def rows(name: str) -> list[tuple[int, int]]:
    (case,) = CASES.glob(f"{name}-*")
    lines = (case / "canary.csv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(",") for line in lines if line[:1].isdigit()]
    return [(int(length), int(found)) for length, found in pairs]


@pytest.mark.parametrize(("name", "unit"), [("01", 528), ("02", 256), ("03", 800)])
def test_the_unit_of_a_case_is_found(name: str, unit: int) -> None:
    assert explain(rows(name), None) == unit
    assert explain(rows(name), 16) == unit
    assert all(plain(length, unit) == found for length, found in rows(name))


def test_a_drafters_unit_is_found() -> None:
    assert explain(rows("05"), None, drafted) == 1600
    assert explain([(2900, 2112), (5200, 4224)], 528, drafted) == 528  # and not their common divisor


@pytest.mark.parametrize(
    ("pairs", "stated", "unit"),
    [
        ([(700, 0), (2000, 1600)], 16, 800),  # 1,600 would do as well
        ([(2003, 0), (2003, 1984)], 16, None),  # nothing explains both
        ([(700, 0)], 16, None),
        ([(2001, 2000), (1000, 992)], 16, 16),
        ([(10, 9), (8, 7)], None, 1),
    ],
)
def test_what_explains_all_is_taken(pairs: list[tuple[int, int]], stated: int | None, unit: int | None) -> None:
    assert explain(pairs, stated) == unit


@given(st.integers(1, 300).map(lambda n: n * 16), st.lists(st.integers(1, 20000), min_size=1))
def test_the_true_unit_explains_what_it_gives(unit: int, lengths: list[int]) -> None:
    pairs = [(length, plain(length, unit)) for length in lengths]
    assert explain(pairs, unit) == (unit if any(found for _, found in pairs) else None)
    assert all(0 <= drafted(length, unit) <= plain(length, unit) < max(length, 1) for length in lengths)
