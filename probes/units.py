"""How much of a prompt sent again is found, by the unit of reuse; and which unit explains what was found. Pure."""

import math
from collections.abc import Callable, Collection
from typing import Final

LARGE_BLOCK: Final = 256  # tokens: no plain model has such blocks
LARGEST_BLOCK: Final = 4096  # tokens: no model is known whose blocks are larger
MULTIPLE: Final = 16  # tokens: what vLLM's blocks are a multiple of
Pair = tuple[int, int]  # tokens of a prompt sent again, and those of them that were found
Model = Callable[[int, int], int]


def plain(length: int, unit: int) -> int:
    """Return the tokens of a prompt sent again that are found: whole units, never the last token."""
    return max(0, length - 1) // unit * unit


def drafted(length: int, unit: int) -> int:
    """Return the same with a drafter, which gives the last unit up."""
    return max(0, plain(length, unit) - unit)


def explain(pairs: Collection[Pair], stated: int | None, model: Model = plain) -> int | None:
    """Return the unit that explains every pair: the stated one if it does, else the smallest that does."""
    hits = {found for _, found in pairs if found}
    if not hits:
        return None
    whole = math.gcd(*hits)
    step = MULTIPLE if whole % MULTIPLE == 0 else 1
    units = (unit for unit in range(step, whole + 1, step) if whole % unit == 0)
    return next(
        (unit for unit in (stated, *units) if unit and all(model(length, unit) == found for length, found in pairs)),
        None,
    )
