"""The simulated engine does what the real one does: the same usage and the same counter increases, call by call."""

import random
from collections.abc import Iterator
from typing import Any

from demo.engine import serving
from demo.rank import Settings
from tests.engine.conftest import start
from tests.engine.traffic import served

CALLS = 150
BLOCKS = 40  # of 32 tokens: small enough that prompts evict each other
MAX_TOKENS = 1024


def calls(seed: int) -> Iterator[dict[str, Any]]:
    """Yield chats and completions that share beginnings, with salts, long answers and skipped lookups."""
    chance = random.Random(seed)
    texts = [f"reference text number {i}. " * 40 for i in range(6)]
    for _ in range(CALLS):
        shared = chance.choice(texts)[: chance.choice([20, 31, 32, 33, 64, 200, 319, 320, 321, 500])]
        more: dict[str, Any] = {"max_tokens": chance.choice([1, 2, 5, 33])}
        if chance.random() < 0.2:
            more["cache_salt"] = chance.choice("AB")
        kind = chance.randrange(4)
        if kind == 0:
            asked = {"role": "user", "content": f"question {chance.randrange(3)} \u00e9"}
            messages = [{"role": "system", "content": shared}, asked]
            yield {"path": "/v1/chat/completions", "messages": messages, **more}
        elif kind == 1:
            yield {"prompt": [*shared.encode(), 258, 7], **more}
        elif kind == 2:
            yield {"prompt": shared, "prompt_logprobs": 1, **more}
        else:
            yield {"prompt": shared, **more}


def test_call_by_call() -> None:
    settings = Settings(block_size=32, blocks=BLOCKS, base_ms=0, decode_ms=0, prefill_us_per_token=0)
    with start("--num-gpu-blocks-override", str(BLOCKS), "--max-model-len", str(MAX_TOKENS)) as real:
        truth = list(served(real, calls(7)))
    with serving(settings) as simulated:
        told = list(served(simulated.url, calls(7)))
        evictions = simulated.ranks[0].cache.evictions
    different = [(n, a, b) for n, (a, b) in enumerate(zip(truth, told, strict=True)) if a != b]
    assert different == []
    assert {said["status"] for said, _ in truth} == {200}
    assert sum(rise.get("hit", 0) for _, rise in truth) > 1000
    assert evictions > 100
