"""The README's picture is the plot of the measured run."""

import pytest

from benchmarks.picture import picture
from tests.inputs import TESTS

BENCH = TESTS.parent / "docs" / "bench"
TITLE = "TTFT against the share of the prompt that was cached"


def test_the_readme_s_picture_is_of_the_page() -> None:
    page = (BENCH / "h200-graph.html").read_text(encoding="utf-8")
    drawn = picture(page, TITLE)
    assert drawn == (BENCH / "h200-share.svg").read_text(encoding="utf-8")
    assert "var(" not in drawn


def test_an_unknown_title_is_told_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no plot of that title; there are: A; B$"):
        picture("<figcaption>A</figcaption><svg ></svg><figcaption>B</figcaption>", "C")
