"""Names are spelled once and agree in both directions."""

import re

from exporter.metrics import FAMILIES
from probes.metrics import FAMILIES as PROBE_FAMILIES
from tests.inputs import TESTS

ROOT = TESTS.parent
SOURCES = [
    path
    for folder in ("exporter", "probes", "demo", "native", "prometheus", "benchmarks")
    for path in (ROOT / folder).rglob("*.*")
]
SUFFIX = re.compile(r"_(bucket|sum|count)$")
# Whose series only an engine can give that no capture shows.
UNSEEN = {"apc_engine_healthy"}
# Words that look like a family and are a state or a fault.
WORDS = {"apc_disabled", "apc_off"}


def names_in(text: str) -> set[str]:
    # Those with a colon are recorded by rules; `apc_engine_*` is no name.
    return set(re.findall(r"(?<![:\w])apc_[a-z0-9_]*[a-z0-9](?![:\w])", text))


def test_engine_names_are_spelled_in_one_file() -> None:
    spelled = re.compile(r"(vllm|sglang)[:_](prefix|gpu|prompt|num_|kv_|cache_|time_|request_|token)")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if path.suffix in {".py", ".yml"} and spelled.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_declared_family_is_seen_in_a_golden_exposition() -> None:
    seen = set()
    for path in (TESTS / "golden").glob("*.prom"):
        seen |= {SUFFIX.sub("", name) for name in names_in(path.read_text(encoding="utf-8"))}
    assert seen | UNSEEN == {family.name for family in FAMILIES}


def test_every_name_in_the_repository_is_declared() -> None:
    declared = {family.name for family in (*FAMILIES, *PROBE_FAMILIES)}
    texts = [*SOURCES, ROOT / "README.md"]
    used = {
        SUFFIX.sub("", name)
        for path in texts
        if path.suffix in {".py", ".yml", ".md"}
        for name in names_in(path.read_text(encoding="utf-8"))
    }
    assert used - declared - WORDS == set()
