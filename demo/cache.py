"""vLLM's prefix cache as bookkeeping: which prompt blocks are kept, found again and evicted. No KV, no threads.

The rules are those of vLLM's block pool. A block's key chains its parent's key, its tokens and the request's extra
keys, so equal keys mean equal prefixes. A block that nobody holds keeps its key and waits, least recently used
first, to be handed out again; only then is it evicted. Equal blocks are not merged.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

TIMED_HITS = 4  # vLLM times the gaps between a block's last few hits


@dataclass(frozen=True, slots=True)
class Residency:
    """What a block had lived through when it was handed out again; seconds."""

    lifetime: float
    idle: float
    reuse_gaps: tuple[float, ...]


@dataclass(slots=True, eq=False)
class Block:
    """One block of the pool. `key` is set while it can be found, `allocated_at` once it was handed out."""

    key: int | None = None
    holders: int = 0
    allocated_at: float | None = None
    touched_at: float = 0.0
    hits: tuple[float, ...] = ()  # when


@dataclass(slots=True, eq=False)
class Allocation:
    """What an admitted request holds: the tokens that have KV, and their blocks."""

    cache: "PrefixCache"
    extra: tuple[str, ...]
    tokens: list[int]
    keys: list[int]  # of the full blocks
    blocks: list[Block] = field(default_factory=list)
    cached_tokens: int = 0  # found at admission


class PrefixCache:
    """A pool of `blocks` blocks of `block_size` tokens each, for one thread at a time."""

    def __init__(
        self,
        blocks: int,
        block_size: int,
        *,
        caching: bool = True,
        given_up: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an empty pool. The last `given_up` blocks of a hit stay unused, as with an MTP drafter."""
        self.blocks = blocks
        self.block_size = block_size
        self.caching = caching
        self.evictions = 0
        self.residencies: list[Residency] = []  # for the reader to empty
        self._given_up = given_up
        self._clock = clock
        self._pool = tuple(Block() for _ in range(blocks))
        self._free = OrderedDict[Block, None].fromkeys(self._pool)
        self._table: dict[int, dict[Block, None]] = {}

    @property
    def held(self) -> int:
        """The blocks that admitted requests hold; what is merely cached counts as free."""
        return self.blocks - len(self._free)

    def admit(self, tokens: Sequence[int], extra: tuple[str, ...] = (), *, read: bool = True) -> Allocation | None:
        """Find and allocate the blocks of a prompt; None while too few are free.

        Its full blocks can be found from now on, before anything is computed. `extra` (salt, adapter) keeps equal
        prompts apart; without `read` nothing is looked up. Raise ValueError if the pool could never hold the prompt.
        """
        wanted = -(-len(tokens) // self.block_size)
        if wanted > self.blocks:
            raise ValueError(f"{len(tokens)} tokens need {wanted} blocks, the cache has {self.blocks}")
        allocation = Allocation(self, extra, list(tokens), self._keys(tokens, extra))
        found = self._lookup(allocation) if read else []
        if wanted - len(found) + sum(not block.holders for block in found) > len(self._free):
            return None
        now = self._clock()
        for block in found:
            self._free.pop(block, None)
            block.holders += 1
            block.touched_at = now
            block.hits = (*block.hits, now)[-TIMED_HITS:]
        allocation.cached_tokens = len(found) * self.block_size
        allocation.blocks = found + [self._allocate() for _ in range(wanted - len(found))]
        for index in range(len(found), len(allocation.keys)):
            self._register(allocation, index)
        return allocation

    def append(self, allocation: Allocation, token: int) -> bool:
        """Add a generated token; False, and nothing done, when that takes a block and none is free."""
        if len(allocation.tokens) == len(allocation.blocks) * self.block_size:
            if not self._free:
                return False
            allocation.blocks.append(self._allocate())
        allocation.tokens.append(token)
        if len(allocation.tokens) % self.block_size == 0:
            parent = allocation.keys[-1] if allocation.keys else None
            allocation.keys.append(_key(parent, allocation.tokens[-self.block_size :], allocation.extra))
            self._register(allocation, len(allocation.keys) - 1)
        return True

    def release(self, allocation: Allocation) -> None:
        """Take the blocks back; what is cached in them can still be found."""
        for block in reversed(allocation.blocks):  # so that a prefix outlives its tail
            block.holders -= 1
            if not block.holders:
                self._free[block] = None
                if block.key is None:
                    self._free.move_to_end(block, last=False)
        allocation.blocks = []

    def reset(self) -> bool:
        """Forget what is cached, which is no eviction; False, and nothing done, while blocks are held."""
        if self.held:
            return False
        self._table.clear()
        for block in self._pool:
            block.key = block.allocated_at = None
        return True

    def _keys(self, tokens: Sequence[int], extra: tuple[str, ...]) -> list[int]:
        keys: list[int] = []
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            keys.append(_key(keys[-1] if keys else None, tokens[end - self.block_size : end], extra))
        return keys

    def _lookup(self, allocation: Allocation) -> list[Block]:
        found: list[Block] = []
        for key in allocation.keys[: (len(allocation.tokens) - 1) // self.block_size]:  # the last token is computed
            if key not in self._table:
                break
            found.append(next(iter(self._table[key])))
        return found[: max(0, len(found) - self._given_up)]

    def _allocate(self) -> Block:
        block, _ = self._free.popitem(last=False)
        now = self._clock()
        if self.caching and block.allocated_at is not None:  # vLLM counts blocks that never had a key, too
            gaps = tuple(later - earlier for earlier, later in pairwise(block.hits))
            self.residencies.append(Residency(now - block.allocated_at, now - block.touched_at, gaps))
        if block.key is not None:
            self.evictions += 1
            del self._table[block.key][block]
            if not self._table[block.key]:
                del self._table[block.key]
        block.key, block.holders, block.hits = None, 1, ()
        block.allocated_at = block.touched_at = now
        return block

    def _register(self, allocation: Allocation, index: int) -> None:
        if self.caching:
            block, key = allocation.blocks[index], allocation.keys[index]
            block.key = key
            self._table.setdefault(key, {})[block] = None


def _key(parent: int | None, tokens: Sequence[int], extra: tuple[str, ...]) -> int:
    return hash((parent, tuple(tokens), extra))
