"""Mutated answers: never an exception that has no name, never hits without queries or above them."""

import math
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.metrics import families
from exporter.read import read
from exporter.scrape import Scrape, ScrapeError
from exporter.snapshot import Fault
from tests.inputs import CAPTURES

SEEDS = [path.read_bytes() for path in CAPTURES]
WANTED = [[line for line in seed.splitlines(keepends=True) if b"prefix" in line or b"usage" in line] for seed in SEEDS]
SPLICES = [
    b'"',
    b"{",
    b"}",
    b"\n",
    b" ",
    b",",
    b"\\",
    b"NaN",
    b"+Inf",
    b"-1",
    b"1e999",
    b"9" * 400,
    b"\x00",
    b"\xff",
    b"#",
]


def mutate(text: bytes, chance: random.Random) -> bytes:
    """Change a few places: cut, repeat, splice, swap numbers."""
    for _ in range(chance.randint(1, 6)):
        at, to = sorted(chance.randint(0, len(text)) for _ in range(2))
        to = min(to, at + 200)
        cut, repeated = text[:at] + text[to:], text[:to] + text[at:]
        spliced = text[:at] + chance.choice(SPLICES) + text[chance.choice([at, to]) :]
        noise = text[:at] + bytes(chance.randrange(256) for _ in range(3)) + text[at:]
        numbers = text.replace(b" 0.0\n", b" %d\n" % chance.randrange(10**6), 1 + chance.randrange(9))
        shorter = text[: text.rfind(b"\n", 0, to) + 1]
        text = chance.choice([cut, repeated, spliced, noise, numbers, shorter])
    return text


@settings(max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.integers(0, 2**32))
def test_mutated_answers(seed: int) -> None:
    chance = random.Random(seed)
    # Whole answers are slow to read; their prefix-cache lines alone reach the same code.
    lines = chance.choice(SEEDS).splitlines(keepends=True) if seed % 50 == 0 else chance.choice(WANTED)
    check(mutate(b"".join(lines), chance))


def check(body: bytes) -> None:
    try:
        snapshot = read(body)
    except ScrapeError:
        return
    values: dict[tuple[str, ...], float] = {}
    for family in families([Scrape("t", 0.0, snapshot)]):
        for sample in family.samples:
            assert math.isfinite(sample.value), sample
            assert sample.value >= 0, sample
            key = tuple(v for k, v in sorted(sample.labels.items()))
            assert (sample.name, *key) not in values, sample
            values[sample.name, *key] = sample.value
            if "ratio" in sample.name:
                assert sample.value <= 1, sample
    for (name, *labels), hits in values.items():
        if name in {"apc_hit_tokens_total", "apc_hit_blocks_total"}:
            assert hits <= values[(name.replace("hit", "queried"), *labels)]
    assert (Fault.HITS_EXCEED_QUERIES in snapshot.faults) == bool(
        values.get(("apc_engine_data_fault", "hits_exceed_queries", "t"))
    )
