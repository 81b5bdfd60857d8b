"""What divides the rules' durations finds all of them, and nothing else changes."""

import re

import pytest

from native.settings import ROOT
from tests.stack.shorten import SECONDS, shorten

RULES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "prometheus" / "rules").glob("*.yml")}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("for: 10m", "for: 40000ms"),
        ("group_wait: 10s", "group_wait: 667ms"),
        ("rate(x[5m] offset 1d)", "rate(x[20000ms] offset 5760000ms)"),
        ("target:apc_hit:ratio_rate5m > 0.5", "target:apc_hit:ratio_rate5m > 0.5"),
        ("target:apc_organic_requests:rate5m * 300 < 10", "target:apc_organic_requests:rate5m * 20 < 10"),
        ("1 / 300", "1 / 300"),
    ],
)
def test_values(before: str, after: str) -> None:
    assert shorten(before, 15) == after


def test_every_number_of_seconds_in_a_rule_is_known() -> None:
    text = "\n".join(re.sub(r"#.*", "", rules) for rules in RULES.values())
    for around, number in SECONDS:
        assert around.format(number) in text
        text = text.replace(around.format(number), "")
    left = re.findall(r"(?<![\w.:-])(?:60|120|300|600|900|1800|3600|86400)(?![\w.])", text)
    assert set(left) == {"60"}  # the token budget of a minute, which is no window
