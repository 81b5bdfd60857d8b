"""A limit on the tokens of any minute."""

from collections import deque
from collections.abc import Callable
from typing import Final

MINUTE: Final = 60.0  # seconds


class Budget:
    """Tokens used in the last minute, against the most that may be used; `clock` gives seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._used: deque[tuple[float, int]] = deque()

    def allows(self, tokens: int) -> bool:
        """Whether that many more tokens keep within the limit."""
        now = self._clock()
        while self._used and self._used[0][0] <= now - MINUTE:
            self._used.popleft()
        return sum(used for _, used in self._used) + tokens <= self._per_minute

    def spend(self, tokens: int) -> None:
        """Take note of tokens that were used."""
        self._used.append((self._clock(), tokens))
