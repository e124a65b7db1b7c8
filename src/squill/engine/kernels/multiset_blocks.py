"""The arena of ordered multisets: its control words, its blocks, and how codes are compared and moved.

The arena is one int64 array: control words, the table of slots, then blocks, which begin with a line of the
cache; two of the smallest share a line. Freed blocks wait in one list per size. An operation takes no more words
than `reserve` in ``squill.engine.multiset`` has promised it, so no operation can fail.

Codes are compared as integers or, when the state carries byte strings, as ids of byte strings by their bytes;
equal strings must have equal ids. Which of the two is part of the state's type, so each is compiled by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import always_inlined, inlined
from squill.engine.kernels.memory import LANES, count_at_most, memmove

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BLOCKS",
    "CAPACITY",
    "FREE",
    "HEADER",
    "LARGEST_BLOCK",
    "LARGEST_RUN",
    "LINE",
    "MOST_WORDS",
    "N_PATHS",
    "ONE",
    "PATH",
    "PATHS",
    "ROOM",
    "SLOTS",
    "SMALLEST_RUN",
    "STACK",
    "TOP",
    "TREE",
    "VERSION",
    "ByteStrings",
    "MultisetState",
    "allocate",
    "move",
    "rank",
    "release",
]

SMALLEST_RUN = 4
LARGEST_RUN = 256
LARGEST_BLOCK = 512
LINE = 8  # the words of a line of the cache
MOST_WORDS = 1 << 33

# Paths lately walked in trees, one per ticket; see `multiset_tree`.
N_PATHS = 32
PATH = 24

# Control words. VERSION grows whenever a path may have become another. FREE and BLOCKS are indexed by
# block size / 4: the head of the free list (0 when empty) and the number of blocks in use.
TOP = 0
SLOTS = 1
CAPACITY = 2
VERSION = 3
STACK = 8
FREE = 40
BLOCKS = FREE + LARGEST_BLOCK // 4 + 1
PATHS = -(-(BLOCKS + LARGEST_BLOCK // 4 + 1) // LINE) * LINE
HEADER = PATHS + N_PATHS * PATH

# A slot is two words: the address of its block, then size << 16 | room. The room is the block's size
# or, for a tree, TREE + height; an empty slot is all zero.
ROOM = 0xFFFF
ONE = 0x10000
TREE = 1024


class ByteStrings(NamedTuple):
    """Byte strings by id: ``data[starts[id] : starts[id] + lengths[id]]``."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


class MultisetState(NamedTuple):
    """A family of multisets, as kernels take it. Codes are plain integers when `text` is None."""

    arena: NDArray[np.int64]
    text: ByteStrings | None


@inlined
def allocate(arena: NDArray[np.int64], words: int) -> int:
    kind = words >> 2
    block = arena[u(FREE + kind)]
    if block != 0:
        arena[u(FREE + kind)] = arena[u(block)]
    else:
        block = arena[TOP]
        arena[TOP] = block + max(words, LINE)
        if words < LINE:  # the other half of the line
            arena[u(block + words)] = 0
            arena[u(FREE + kind)] = block + words
    arena[u(BLOCKS + kind)] += 1
    return block


@inlined
def release(arena: NDArray[np.int64], block: int, words: int) -> None:
    kind = words >> 2
    arena[u(block)] = arena[u(FREE + kind)]
    arena[u(FREE + kind)] = block
    arena[u(BLOCKS + kind)] -= 1


@always_inlined
def move(arena: NDArray[np.int64], source: int, target: int, words: int) -> None:
    if words > 0:
        # Dead loads, except under NUMBA_BOUNDSCHECK: a memmove is not checked.
        arena[source], arena[target], arena[source + words - 1], arena[target + words - 1]
        memmove(arena, source, target, words)


@inlined
def _rank_bytes(arena: NDArray[np.int64], text: ByteStrings, base: int, n: int, code: int) -> int:
    data, starts, lengths = text
    start, length = starts[code], lengths[code]
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        other = arena[base + middle]
        other_start, other_length = starts[other], lengths[other]
        shared = min(length, other_length)
        k = 0
        while k < shared and data[other_start + k] == data[start + k]:
            k += 1
        at_most = data[other_start + k] < data[start + k] if k < shared else other_length <= length
        if at_most:
            low = middle + 1
        else:
            high = middle
    return low


@always_inlined
def rank(arena: NDArray[np.int64], text: ByteStrings | None, base: int, n: int, code: int) -> int:
    """Return how many of the `n` sorted codes at `base` are at most `code`."""
    if text is not None:
        return _rank_bytes(arena, text, base, n, code)
    # The last of every 16 codes, then 16 at once: no branch on the data, and two waits for memory instead of
    # six. What lies behind the n codes is read, but not counted.
    first = np.int64(0)
    for k in range(LANES - 1, n, LANES):
        first += LANES * (arena[u(base + k)] <= code)
    arena[base + first], arena[base + first + LANES - 1]  # dead, except under NUMBA_BOUNDSCHECK
    return min(first + count_at_most(arena, base + first, code), n)
