"""Field reports whose right answer the exporter must give."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from exporter.metrics import FAMILIES, families
from exporter.read import read
from exporter.scrape import Scrape, ScrapeError
from exporter.snapshot import Fault, Snapshot
from exporter.window import NO_CANARY, State, Tokens, Window, lifetime_hit_ratio, window
from tests.inputs import CASES, cases, expectation

# The cases' words for reasons that the contract names otherwise.
REASONS = {"no_vllm_series": "no_engine_series", "http_500": "http_5xx"}
WINDOWS = [
    pytest.param(case, key, wanted, id=f"{case.name}-{key}")
    for case in cases("exporter")
    for key, wanted in (
        (key, value)
        for key, value in {"t0->t1": expectation(case)["exporter"], **expectation(case)["exporter"]}.items()
        if "->" in key
    )
    if (case / "t0.prom").exists() and not any("must_not" in name or name.endswith(".prom") for name in wanted)
]
BODIES = {
    case / name: wanted
    for case in cases("exporter")
    for name, wanted in expectation(case)["exporter"].items()
    if name.endswith(".prom")
}


def load(path: Path) -> Snapshot:
    return read(path.read_bytes())


@pytest.mark.parametrize(("case", "between", "wanted"), WINDOWS)
def test_window(case: Path, between: str, wanted: dict[str, Any]) -> None:
    before, after = (load(case / f"{name}.prom") for name in between.split("->"))
    check(window(before, after, canary_of(case)), wanted)


def canary_of(case: Path) -> Tokens:
    """Return what the canary sent in each window of a case, where it sent anything."""
    if not (case / "canary.json").exists():
        return NO_CANARY
    sent = json.loads((case / "canary.json").read_text(encoding="utf-8"))["per_window"]
    return Tokens(sent["prompt_tokens"], sent["cached_tokens"])


def check(found: Window, wanted: dict[str, Any]) -> None:
    shown = {
        "queries_delta": found.queries,
        "hits_delta": found.hits,
        "prompt_tokens_delta": found.prompt,
        "user_queries_delta": found.queries,
        "hit_rate": found.hit_ratio,
        "user_hit_rate": found.hit_ratio,
        "lifetime_hit_rate": found.lifetime_hit_ratio,
        "state": found.state,
        "quality": found.quality,
    }
    compared = shown.keys() & wanted.keys()
    assert compared
    for name in compared:
        if isinstance(wanted[name], float):
            assert shown[name] == pytest.approx(wanted[name], abs=wanted.get("tol", 1e-9)), name
        else:
            assert shown[name] == wanted[name], name


@pytest.mark.parametrize(("path", "wanted"), BODIES.items(), ids=str)
def test_body(path: Path, wanted: dict[str, Any]) -> None:
    """A single body's counters are taken as a window that began at zero."""
    if "reason" in wanted:
        with pytest.raises(ScrapeError) as raised:
            load(path)
        assert raised.value.reason == REASONS.get(wanted["reason"], wanted["reason"])
        assert exported(Scrape("x", 0.0, error=raised.value))["apc_engine_up"] == wanted["scrape_ok"]
        return
    snapshot = load(path)
    series = exported(Scrape("x", 0.0, snapshot))
    (cache, *_) = snapshot.caches
    shown = {
        "hit_rate": lifetime_hit_ratio(snapshot) or series.get("apc_reported_hit_ratio"),
        "kv_usage": cache.kv_usage,
        "unit": cache.unit,
        "evictions": series.get("apc_evicted_blocks_total"),
        "evictions_sampled": series.get("apc_evicted_blocks_total"),
        "preemptions": series.get("apc_preemptions_total"),
        "state": window(snapshot, snapshot).state,
        "quality": "sampled" if cache.block_lifetime else None,
    }
    for name in wanted.keys() - {"must_not_be"}:
        assert shown[name] == wanted[name], name
    assert shown["hit_rate"] != wanted.get("must_not_be", "")


def exported(scrape: Scrape) -> dict[str, float]:
    """Return the exported values by name, those of several series summed."""
    found: dict[str, float] = {}
    for family in families([scrape]):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_both_generations_and_a_repeated_line_are_never_added() -> None:
    wanted = expectation(CASES / "11-both-name-generations")["exporter"]
    (cache,) = load(CASES / "11-both-name-generations/t1.prom").caches
    assert (cache.queried, cache.hit) == (wanted["queries"], wanted["hits"])


def test_a_ratio_above_one_is_left_out_and_named() -> None:
    upside_down = b"vllm:prefix_cache_queries_total 2000\nvllm:prefix_cache_hits_total 8000\n"
    snapshot = read(upside_down)
    assert Fault.HITS_EXCEED_QUERIES in snapshot.faults
    assert window(snapshot, snapshot) == Window(State.INVALID)
    assert "apc_hit_tokens_total" not in exported(Scrape("x", 0.0, snapshot))


def test_the_target_is_the_only_label_of_up_and_no_name_has_a_colon() -> None:
    (up,) = (family for family in FAMILIES if family.name == "apc_engine_up")
    assert list(up.labels) == expectation(CASES / "29-target-down-three-ways")["exporter"]["target_up_labels_only"]
    wanted = expectation(CASES / "32-colon-becomes-underscore")["exporter"]["own_names_regex"]
    assert all(re.fullmatch(wanted, family.name) for family in FAMILIES)


def test_not_a_single_case_is_left_out() -> None:
    """Each case that expects something of the exporter is met here or where it is named."""
    here = {str(param.id).rpartition("-t")[0] for param in WINDOWS} | {path.parent.name for path in BODIES}
    named = {
        "11-both-name-generations",
        "13-ratio-upside-down",
        "29-target-down-three-ways",
        "34-metrics-redirect-auth-wrong-host",  # and test_fetch.py
        "44-html-login-page",  # test_fetch.py
        "57-duplicated-timeseries",  # test_server.py
        "65-slow-model-load-healthcheck",  # test_fetch.py
    }
    assert {case.name for case in cases("exporter")} == here | named
