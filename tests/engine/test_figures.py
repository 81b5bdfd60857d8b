"""On a real vLLM every exported figure equals what was sent."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.window import State, window
from tests.engine.conftest import start
from tests.engine.traffic import complete, ids, increase, scrape, snap

BLOCK = 32


def test_what_the_engine_is(vllm: str) -> None:
    found = scrape(vllm)
    assert (found.reason, found.healthy) == (None, True)
    assert found.snapshot
    (cache,) = found.snapshot.caches
    assert (found.snapshot.dialect, found.snapshot.version) == ("vllm-v1", "0.32.0")
    assert (cache.model_name, cache.engine) == ("qwen2.5-7b-instruct", "0")
    facts = cache.facts
    assert (facts.prefix_caching_enabled, facts.block_size, facts.reuse_unit) == (True, BLOCK, BLOCK)
    assert found.snapshot.start_time == pytest.approx(time.time(), abs=900)
    assert set(found.snapshot.found.values()) == {True}
    assert found.snapshot.faults == frozenset()


def test_shared_prefixes(vllm: str, reset: Callable[[], None]) -> None:
    """Ten prompts of 320 shared and 20 unique tokens: 3400 looked up, 9 x 320 found."""
    reset()
    before = snap(vllm)
    for i in range(10):
        complete(vllm, prompt=ids(7, 320) + ids(100 + i, 20))
    after = snap(vllm)
    rise = increase(before.caches, after.caches)
    residency = rise.pop("block_lifetime", 0)
    assert rise == {
        "queried": 3400,
        "hit": 2880,
        "prompt": 3400,
        "source local_compute": 520,
        "source local_cache_hit": 2880,
        "ttft": 10,
        "queue": 10,
        "prefill": 10,
    }
    assert residency <= 10  # the partly filled block of each prompt, handed out again: no evictions
    found = window(before, after)
    assert (found.state, found.hit_ratio, found.quality) == (State.HITTING, 2880 / 3400, "exact")


@pytest.mark.parametrize("length", [20, 32, 33, 64, 65, 319, 320, 321, 1000, 1024, 1025])
def test_a_prompt_sent_again_is_found_but_for_its_last_token(vllm: str, length: int) -> None:
    prompt = ids(3000 + length, length)
    complete(vllm, prompt=prompt)
    before = snap(vllm)
    usage = complete(vllm, prompt=prompt)["usage"]
    rise = increase(before.caches, snap(vllm).caches)
    found = (length - 1) // BLOCK * BLOCK
    assert (rise["queried"], rise.get("hit", 0), rise["prompt"]) == (length, found, length)
    assert usage["prompt_tokens_details"]["cached_tokens"] == found


def test_prompt_logprobs_are_never_looked_up(vllm: str) -> None:
    before = snap(vllm)
    complete(vllm, prompt=ids(9, 340), prompt_logprobs=1)
    found = window(before, snap(vllm))
    assert (found.state, found.queries, found.prompt, found.hit_ratio) == (State.NOT_LOOKED_UP, 0, 340, None)


def test_salts_part_the_cache(vllm: str) -> None:
    before = snap(vllm)
    for salt in "AAB":
        complete(vllm, prompt=ids(11, 340), cache_salt=salt)
    rise = increase(before.caches, snap(vllm).caches)
    assert (rise["queried"], rise["hit"]) == (1020, 320)


def test_nothing_moves_while_nothing_is_sent(vllm: str) -> None:
    found = window(snap(vllm), snap(vllm))
    assert (found.state, found.hit_ratio) == (State.NO_TRAFFIC, None)


def test_a_dead_engine_core_shows_in_health_at_once(vllm: str) -> None:
    """The last test of this server: /metrics goes on for some seconds with frozen values, /health does not."""
    os.kill(engine_core(vllm), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (found := scrape(vllm)).healthy is not False:
        assert time.monotonic() < deadline, found
    assert found.healthy is False


def engine_core(url: str) -> int:
    """Return the process id of the engine core behind a server."""
    port = url.rpartition(":")[2]
    lines = {int(path.parent.name): path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")}
    (server,) = [pid for pid, line in lines.items() if f"--port\0{port}\0".encode() in line and b"api_server" in line]
    (core,) = [pid for pid, line in lines.items() if b"EngineCore" in line and parent(pid) == server]
    return core


def parent(pid: int) -> int:
    found = re.search(r"^PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def test_caching_switched_off() -> None:
    with start("--no-enable-prefix-caching", "--api-key", "sk-demo-0000") as url:
        before = snap(url)  # the metrics page wants no key
        assert complete(url, prompt=ids(1, 100))["status"] == 401
        import requests  # noqa: PLC0415

        body = {"model": "qwen2.5-7b-instruct", "prompt": ids(1, 340), "max_tokens": 4}
        for _ in range(2):
            requests.post(
                f"{url}/v1/completions", json=body, headers={"Authorization": "Bearer sk-demo-0000"}, timeout=60
            )
        after = snap(url)
    (cache,) = after.caches
    assert cache.facts.prefix_caching_enabled is False
    found = window(before, after)
    assert (found.state, found.queries, found.prompt, found.hit_ratio) == (State.NOT_LOOKED_UP, 0, 680, None)
