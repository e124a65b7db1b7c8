"""Ordered multisets of int64 codes, one per slot, in one arena.

Problem: minimum, percentile, first, last and top-k must forget rows again, for hundreds of thousands
of keys of which nearly all hold a few codes and some hold millions.

Idea: a small group is one sorted run in a block of 4, 8, ... 64 words of an arena. A group of more
than 64 codes is a B+ tree: its leaves are blocks of 64 words, its nodes blocks of 64 to 512 words with
the first code, the address and the number of codes of each child. Freed blocks wait in one list per
size. An operation walks to a leaf and changes it and the counts above; only where that leaf is full or
thin is the tree first split or merged, from the root down.

Invariants: a node holds exactly the first code and the number of codes of each child; a root has
two children or more; a leaf is never empty; a node of fewer than 512 words is the root of a tree of
height 1. An operation takes no more words than `reserve` in ``squill.engine.multiset`` has promised
it, so no operation can fail.

Cost: waiting for memory decides, since few groups are in the cache, then branches that are guessed
wrong. A small group is its slot and the lines of its run; a tree of 100,000 codes is a path through two
nodes and the 512 bytes of a leaf. So a loop that knows its operations beforehand calls `prefetch`, which
walks ahead; the operation then takes the path that the walk has left.

The arena is one int64 array: control words, the table of slots, then blocks, which begin with a line of the
cache; two of the smallest share a line. Codes are compared as
integers or, when the state carries byte strings, as ids of byte strings by their bytes; equal strings
must have equal ids. Which of the two is part of the state's type, so each is compiled by itself.

The operations are kernels rather than inlined helpers, so that a fold that calls them finds them on
disk: it compiles in a second instead of five.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from squill.engine.kernels.jit import always_inlined, inlined, kernel
from squill.engine.kernels.memory import LANES, count_at_most, memmove, prefetch_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BLOCKS",
    "CAPACITY",
    "FREE",
    "GROUP",
    "HEADER",
    "LANES",
    "LEAF",
    "LINE",
    "MOST_WORDS",
    "NODE",
    "PATHS",
    "SLOTS",
    "SMALLEST",
    "TOP",
    "VERSION",
    "ByteStrings",
    "MultisetState",
    "apply_changes",
    "clear",
    "code_floats",
    "compact",
    "copy_range",
    "decode_floats",
    "insert",
    "kth",
    "largest",
    "locate",
    "prefetch",
    "read_slots",
    "remove",
    "size",
    "smallest",
]

SMALLEST = 4
LEAF = 64
LINE = 8  # the words of a line of the cache
NODE = 512
SHORT = 16  # up to here a linear search beats all others
GROUP = 8  # how many operations `prefetch` takes at a time

# A node: the number of children and the block's size, the first code of each child, and from the middle on
# a link to each child: its address << LINK | its number of codes. A child of a tree of height 4, which
# 64 GiB of arena do not outgrow, has fewer than 2**30 codes.
FIRSTS = 2
LINK = 30
COUNT = (1 << LINK) - 1
MOST_WORDS = 1 << 63 - LINK
FANOUT = NODE // 2 - 1
THIN_LEAF = LEAF // 4
THIN_NODE = FANOUT // 4

# Paths lately walked, one per ticket, each with room for six levels. A path: the slot's address, the code, the
# version for which it holds, the address of its last pair, and for each level a pair, the node and the number of
# the child.
N_PATHS = 32  # at least 3 * GROUP: so many operations `prefetch` is ahead of the loop
PATH = 16
PATH_CODE = 1
PATH_VERSION = 2
PATH_LAST = 3
PAIRS = 4

# Control words. VERSION grows whenever a path may have become another. FREE and BLOCKS are indexed by
# block size / 4: the head of the free list (0 when empty) and the number of blocks in use.
TOP = 0
SLOTS = 1
CAPACITY = 2
VERSION = 3
STACK = 8
FREE = 40
BLOCKS = FREE + NODE // 4 + 1
PATHS = -(-(BLOCKS + NODE // 4 + 1) // LINE) * LINE
HEADER = PATHS + N_PATHS * PATH

# A slot is two words: the address of its block, then size << 16 | room. The room is the block's size
# or, for a tree, TREE + height; an empty slot is all zero.
ROOM = 0xFFFF
ONE = 0x10000
TREE = 1024

MAGNITUDE = 0x7FFFFFFFFFFFFFFF
INFINITY = 0x7FF0000000000000
NOT_A_NUMBER = 0x7FF8000000000000


class ByteStrings(NamedTuple):
    """Byte strings by id: ``data[starts[id] : starts[id] + lengths[id]]``."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


class MultisetState(NamedTuple):
    """A family of multisets, as kernels take it. Codes are plain integers when `text` is None."""

    arena: NDArray[np.int64]
    text: ByteStrings | None


@always_inlined
def _move(arena: NDArray[np.int64], source: int, target: int, words: int) -> None:
    if words > 0:
        # Dead loads, except under NUMBA_BOUNDSCHECK: a memmove is not checked.
        arena[source], arena[target], arena[source + words - 1], arena[target + words - 1]
        memmove(arena, source, target, words)


@inlined
def _allocate(arena: NDArray[np.int64], words: int) -> int:
    kind = words >> 2
    block = arena[FREE + kind]
    if block != 0:
        arena[FREE + kind] = arena[block]
    else:
        block = arena[TOP]
        arena[TOP] = block + max(words, LINE)
        if words < LINE:  # the other half of the line
            arena[block + words] = 0
            arena[FREE + kind] = block + words
    arena[BLOCKS + kind] += 1
    return block


@inlined
def _release(arena: NDArray[np.int64], block: int, words: int) -> None:
    kind = words >> 2
    arena[block] = arena[FREE + kind]
    arena[FREE + kind] = block
    arena[BLOCKS + kind] -= 1


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
def _rank(arena: NDArray[np.int64], text: ByteStrings | None, base: int, n: int, code: int) -> int:
    """Return how many of the `n` sorted codes at `base` are at most `code`."""
    if text is not None:
        return _rank_bytes(arena, text, base, n, code)
    # The last of every 16 codes, then 16 at once: no branch on the data, and two waits for memory instead of
    # six. What lies behind the n codes is read, but not counted. Unsigned, because numba wraps signed indices.
    start, steps = np.uint64(base), np.uint64(0)
    for k in range(np.uint64(LANES - 1), np.uint64(n), np.uint64(LANES)):
        steps += np.uint64(arena[start + k] <= code)
    first = np.int64(steps) * LANES
    arena[base + first], arena[base + first + LANES - 1]  # dead, except under NUMBA_BOUNDSCHECK
    return min(first + count_at_most(arena, base + first, code), n)


@always_inlined
def _links(arena: NDArray[np.int64], node: int) -> int:
    """Return the address of a node's first link."""
    return node + 1 + (arena[node + 1] >> 1)


@always_inlined
def _count_of(arena: NDArray[np.int64], link: int) -> int:
    """Return how many codes the child has whose link is at address `link`."""
    return arena[link] & COUNT


@always_inlined
def _child_of(arena: NDArray[np.int64], text: ByteStrings | None, node: int, code: int) -> int:
    """Return the number of the last child that may hold `code`."""
    return max(_rank(arena, text, node + FIRSTS, arena[node], code) - 1, 0)


@always_inlined
def _insert_sorted(arena: NDArray[np.int64], text: ByteStrings | None, base: int, n: int, code: int) -> int:
    """Insert into the `n` sorted codes at `base`; return how many come before."""
    if text is None and n <= SHORT:
        one = np.uint64(1)
        start, at = np.uint64(base), np.uint64(base + n)
        while at > start and arena[at - one] > code:
            arena[at] = arena[at - one]
            at -= one
        arena[at] = code
        return np.int64(at - start)
    rank = _rank(arena, text, base, n, code)
    _move(arena, base + rank, base + rank + 1, n - rank)
    arena[base + rank] = code
    return rank


@inlined
def _transfer(arena: NDArray[np.int64], level: int, source: int, i: int, target: int, j: int, n: int) -> int:
    """Move `n` codes of leaves, which are level 0, or children of nodes, from the i-th on to the j-th place.

    Returns how many codes that is.
    """
    if level == 0:
        _move(arena, source + i, target + j, n)
        return n
    codes = 0
    links, to = _links(arena, source) + i, _links(arena, target) + j
    for k in range(n):
        codes += arena[links + k] & COUNT
    _move(arena, links, to, n)
    _move(arena, source + FIRSTS + i, target + FIRSTS + j, n)
    return codes


@inlined
def _shift_children(arena: NDArray[np.int64], node: int, k: int, by: int) -> None:
    """Move the children from the k-th on by one place; a node has one child more or less then."""
    links, n = _links(arena, node), arena[node] - k
    _move(arena, node + FIRSTS + k, node + FIRSTS + k + by, n)
    _move(arena, links + k, links + k + by, n)
    arena[node] += by


@inlined
def _split(arena: NDArray[np.int64], node: int, k: int, level: int, keep: int) -> None:
    """Move all but `keep` of what the full k-th child holds to a new child after it."""
    link = _links(arena, node) + k
    child = arena[link] >> LINK
    if level == 0:
        fresh = _allocate(arena, np.int64(LEAF))
        codes = _transfer(arena, level, child, keep, fresh, 0, LEAF - keep)
        first = arena[fresh]
    else:
        fresh = _allocate(arena, np.int64(NODE))
        arena[fresh + 1] = NODE
        codes = _transfer(arena, level, child, keep, fresh, 0, FANOUT - keep)
        arena[child] = keep
        arena[fresh] = FANOUT - keep
        first = arena[fresh + FIRSTS]
    arena[link] -= codes
    _shift_children(arena, node, k + 1, 1)
    arena[node + FIRSTS + k + 1] = first
    arena[link + 1] = fresh << LINK | codes


@inlined
def _even(arena: NDArray[np.int64], node: int, k: int, level: int) -> None:
    """Merge the k-th child and the next, or share evenly what one child cannot hold."""
    link = _links(arena, node) + k
    left, right = arena[link] >> LINK, arena[link + 1] >> LINK
    n, m, room, first = arena[link] & COUNT, arena[link + 1] & COUNT, LEAF, 0
    if level > 0:
        n, m, room, first = arena[left], arena[right], FANOUT, FIRSTS
    target = n + m if n + m <= room else (n + m) >> 1
    if n < target:
        moved = _transfer(arena, level, right, 0, left, n, target - n)
        _transfer(arena, level, right, target - n, right, 0, n + m - target)
    else:
        _transfer(arena, level, right, 0, right, n - target, m)
        moved = -_transfer(arena, level, left, target, right, 0, n - target)
    if level > 0:
        arena[left] = target
        arena[right] = n + m - target
    arena[link] += moved
    arena[link + 1] -= moved
    arena[node + FIRSTS + k + 1] = arena[right + first]
    if target == n + m:
        _release(arena, right, arena[right + 1] if level > 0 else LEAF)
        _shift_children(arena, node, k + 2, -1)


@inlined
def _resize_root(arena: NDArray[np.int64], at: int, words: int) -> int:
    """Move the root of the slot at address `at` to a block of `words`; return its address."""
    old = arena[at]
    root = _allocate(arena, words)
    arena[root] = arena[old]
    arena[root + 1] = words
    _transfer(arena, np.int64(1), old, 0, root, 0, arena[old])
    _release(arena, old, arena[old + 1])
    arena[at] = root
    return root


@inlined
def _raise_root(arena: NDArray[np.int64], at: int, height: int) -> int:
    """Put a root with one child, the old root or leaf, on the slot at `at`; return its address."""
    old, n = arena[at], arena[at + 1] >> 16
    words = NODE if height > 0 else LEAF
    root = _allocate(arena, words)
    arena[root] = 1
    arena[root + 1] = words
    arena[root + FIRSTS] = arena[old + FIRSTS] if height > 0 else arena[old]
    arena[_links(arena, root)] = old << LINK | n
    arena[at] = root
    arena[at + 1] = n << 16 | (TREE + height + 1)
    return root


@kernel
def _new_path(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int, path: int) -> None:
    """Walk to the leaf of `code` in the tree of the slot at address `at`, and write down the path."""
    node, pair = arena[at], path + PAIRS
    for _ in range((arena[at + 1] & ROOM) - TREE):
        k = _child_of(arena, text, node, code)
        arena[pair] = node
        arena[pair + 1] = k
        pair += 2
        node = arena[_links(arena, node) + k] >> LINK
    arena[path] = at
    arena[path + PATH_CODE] = code
    arena[path + PATH_VERSION] = arena[VERSION]
    arena[path + PATH_LAST] = pair - 2


@always_inlined
def _walk(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int, ticket: int) -> int:
    """Return the address of the path to the leaf of `code` in the tree of the slot at address `at`.

    The walk is made once, by `prefetch` if it was called, and remembered until a path may be another.
    """
    path = PATHS + PATH * (ticket & (N_PATHS - 1))
    if arena[path] != at or arena[path + PATH_CODE] != code or arena[path + PATH_VERSION] != arena[VERSION]:
        _new_path(arena, text, at, code, path)
    return path


@always_inlined
def _last_link(arena: NDArray[np.int64], path: int) -> int:
    """Return the link to the leaf of a path."""
    last = arena[path + PATH_LAST]
    return arena[_links(arena, arena[last]) + arena[last + 1]]


@always_inlined
def _count(arena: NDArray[np.int64], path: int, by: int) -> None:
    """Let there be one code more or less in the leaf of a path."""
    for pair in range(path + PAIRS, arena[path + PATH_LAST] + 2, 2):
        arena[_links(arena, arena[pair]) + arena[pair + 1]] += by
    arena[arena[path] + 1] += by * ONE


@inlined
def _set_first(arena: NDArray[np.int64], path: int, code: int) -> None:
    """Let `code` be the first of the leaf of a path, and of every node whose first leaf that is."""
    pair = arena[path + PATH_LAST]
    arena[arena[pair] + FIRSTS + arena[pair + 1]] = code
    while pair > path + PAIRS and arena[pair + 1] == 0:
        pair -= 2
        arena[arena[pair] + FIRSTS + arena[pair + 1]] = code


@kernel
def _make_room(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> None:
    """Let the leaf of `code` have room, and no node on the way be full; a full small group becomes a tree."""
    arena[VERSION] += 1
    node = arena[at]
    height = max((arena[at + 1] & ROOM) - TREE, 0)
    if height > 0 and arena[node] == (arena[node + 1] >> 1) - 1 and arena[node + 1] < NODE:
        node = _resize_root(arena, at, 2 * arena[node + 1])
    elif height == 0 or arena[node] == FANOUT:
        node = _raise_root(arena, at, height)
        height += 1
    rightmost = True
    for level in range(height - 1, -1, -1):
        k = _child_of(arena, text, node, code)
        rightmost = rightmost and k == arena[node] - 1
        child = arena[_links(arena, node) + k] >> LINK
        if level > 0:
            if arena[child] == FANOUT:
                _split(arena, node, k, level, FANOUT // 2)
        else:
            # Codes that only grow, such as arrival numbers, leave nearly full leaves behind.
            appends = rightmost and _rank(arena, text, child, np.int64(LEAF), code) == LEAF
            _split(arena, node, k, level, LEAF - 1 if appends else LEAF // 2)
        node = arena[_links(arena, node) + _child_of(arena, text, node, code)] >> LINK


@kernel
def _thicken(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> None:
    """Leave no thin block on the way to the leaf of `code`; a root with one child gives way to it."""
    arena[VERSION] += 1
    node, tag = arena[at], arena[at + 1]
    height = (tag & ROOM) - TREE
    if height == 1 and arena[node + 1] > LEAF and arena[node] <= arena[node + 1] >> 3:
        node = _resize_root(arena, at, arena[node + 1] >> 1)
    for level in range(height - 1, -1, -1):
        k = _child_of(arena, text, node, code)
        link = arena[_links(arena, node) + k]
        thin = link & COUNT <= THIN_LEAF if level == 0 else arena[link >> LINK] <= THIN_NODE
        if thin:
            _even(arena, node, min(k, arena[node] - 2), level)
            link = arena[_links(arena, node) + _child_of(arena, text, node, code)]
        if arena[node] == 1:  # only a root has so few
            height -= 1
            arena[at] = link >> LINK
            arena[at + 1] = (tag & ~ROOM) | (TREE + height if height > 0 else LEAF)
            _release(arena, node, arena[node + 1])
        node = link >> LINK


@inlined
def _resize(arena: NDArray[np.int64], at: int, words: int) -> None:
    """Move the small group of the slot at address `at` to a block of `words`."""
    base, tag = arena[at], arena[at + 1]
    room = tag & ROOM
    block = _allocate(arena, words)
    _move(arena, base, block, tag >> 16)
    if room != 0:
        _release(arena, base, room)
    arena[at] = block
    arena[at + 1] = tag - room + words


@inlined
def _small_remove(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> bool:
    base, tag = arena[at], arena[at + 1]
    n = tag >> 16
    if n <= SHORT:
        one = np.uint64(1)
        k, end = np.uint64(base), np.uint64(base + n)
        while k < end and arena[k] != code:
            k += one
        if k == end:
            return False
        while k + one < end:
            arena[k] = arena[k + one]
            k += one
    else:
        rank = _rank(arena, text, base, n, code)
        if rank == 0 or arena[base + rank - 1] != code:
            return False
        _move(arena, base + rank, base + rank - 1, n - rank)
    arena[at + 1] = tag - ONE
    room = tag & ROOM
    if n == 1:
        _release(arena, base, room)
        arena[at] = 0
        arena[at + 1] = 0
    elif n - 1 <= room >> 2 and room > SMALLEST:
        _resize(arena, at, room >> 1)
    return True


@kernel
def insert(state: MultisetState, slot: int, code: int, ticket: int) -> None:
    """Add one occurrence of `code` to the multiset of `slot`.

    The ticket is the operation's row where `prefetch` was called for it, else any number.
    """
    arena, text = state
    at = arena[SLOTS] + 2 * slot
    tag = arena[at + 1]
    room, n = tag & ROOM, tag >> 16
    if room < TREE and n < LEAF:
        if n == room:
            _resize(arena, at, max(2 * room, SMALLEST))
        _insert_sorted(arena, text, arena[at], n, code)
        arena[at + 1] += ONE
        return
    if room < TREE:
        _make_room(arena, text, at, code)
    path = _walk(arena, text, at, code, ticket)
    link = _last_link(arena, path)
    if link & COUNT == LEAF:
        _make_room(arena, text, at, code)
        path = _walk(arena, text, at, code, ticket)
        link = _last_link(arena, path)
    _count(arena, path, 1)
    if _insert_sorted(arena, text, link >> LINK, link & COUNT, code) == 0:
        _set_first(arena, path, code)


@kernel
def remove(state: MultisetState, slot: int, code: int, ticket: int) -> bool:
    """Take one occurrence of `code` away; return False, and change nothing, when there is none.

    The ticket is the operation's row where `prefetch` was called for it, else any number.
    """
    arena, text = state
    at = arena[SLOTS] + 2 * slot
    if (arena[at + 1] & ROOM) < TREE:
        return _small_remove(arena, text, at, code)
    path = _walk(arena, text, at, code, ticket)
    link = _last_link(arena, path)
    if link & COUNT <= THIN_LEAF:
        _thicken(arena, text, at, code)
        if (arena[at + 1] & ROOM) < TREE:
            return _small_remove(arena, text, at, code)
        path = _walk(arena, text, at, code, ticket)
        link = _last_link(arena, path)
    leaf, n = link >> LINK, link & COUNT
    rank = _rank(arena, text, leaf, n, code)
    if rank == 0 or arena[leaf + rank - 1] != code:
        return False
    _move(arena, leaf + rank, leaf + rank - 1, n - rank)
    _count(arena, path, -1)
    if rank == 1:
        arena[VERSION] += 1
        _set_first(arena, path, arena[leaf])
    return True


@kernel
def prefetch(state: MultisetState, slots: NDArray[np.int32], codes: NDArray[np.int64], row: int) -> None:
    """Ask the memory for what the operations after `row` will touch; to be called before every eighth (`GROUP`).

    It looks ahead, for eight operations each: far ahead for the slots, nearer for their blocks,
    and nearest for the leaves. The walks to the leaves stand together so that they wait for memory together.
    Optional: it changes no multiset, and halves the time of a loop whose groups are not in the cache.
    """
    arena, text = state
    table, n = arena[SLOTS], slots.size
    for i in range(min(row + 3 * GROUP, n), min(row + 4 * GROUP, n)):
        prefetch_word(arena, table + 2 * slots[i])
    for i in range(min(row + 2 * GROUP, n), min(row + 3 * GROUP, n)):
        if slots[i] == slots[i - 1]:
            continue
        at = table + 2 * slots[i]
        base, room = arena[at], arena[at + 1] & ROOM
        for line in range(0, min(room, LEAF), LINE):
            prefetch_word(arena, base + line)
    for i in range(min(row + GROUP, n), min(row + 2 * GROUP, n)):
        at = table + 2 * slots[i]
        if (arena[at + 1] & ROOM) >= TREE:
            leaf = _last_link(arena, _walk(arena, text, at, codes[i], i)) >> LINK
            for line in range(0, LEAF, LINE):
                prefetch_word(arena, leaf + line)


@kernel
def size(state: MultisetState, slot: int) -> int:
    """Return how many codes the multiset of `slot` holds, repeated ones included."""
    arena = state[0]
    return arena[arena[SLOTS] + 2 * slot + 1] >> 16


@kernel
def smallest(state: MultisetState, slot: int) -> int:
    """Return the first code of `slot`, which must not be empty."""
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    return arena[arena[at] + (FIRSTS if (arena[at + 1] & ROOM) >= TREE else 0)]


@kernel
def largest(state: MultisetState, slot: int) -> int:
    """Return the last code of `slot`, which must not be empty."""
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    node, tag = arena[at], arena[at + 1]
    n = tag >> 16
    for _ in range((tag & ROOM) - TREE):
        link = arena[_links(arena, node) + arena[node] - 1]
        node, n = link >> LINK, link & COUNT
    return arena[node + n - 1]


@kernel
def locate(state: MultisetState, slot: int, k: int) -> tuple[int, int]:
    """Return the address of the code at position `k` and how many codes its block has from there."""
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    node, tag = arena[at], arena[at + 1]
    n = tag >> 16
    for _ in range((tag & ROOM) - TREE):
        link = _links(arena, node)
        if 2 * k < n:
            while k >= _count_of(arena, link):
                k -= _count_of(arena, link)
                link += 1
        else:  # from the back, which is where large percentiles and top-k look
            k -= n
            link += arena[node]
            while k < 0:
                link -= 1
                k += _count_of(arena, link)
        node, n = arena[link] >> LINK, arena[link] & COUNT
    return node + k, n - k


@kernel
def kth(state: MultisetState, slot: int, k: int) -> int:
    """Return the code at position `k` of `slot`, counted from 0; ``0 <= k < size`` must hold."""
    arena = state[0]
    return arena[locate(state, slot, k)[0]]


@kernel
def copy_range(state: MultisetState, slot: int, k: int, n: int, out: NDArray[np.int64]) -> int:
    """Copy up to `n` codes from position `k` on, in order, to the front of `out`; return how many."""
    arena = state[0]
    n = max(min(n, size(state, slot) - k), 0)
    done = 0
    while done < n:
        at, run = locate(state, slot, k + done)
        run = min(run, n - done)
        for j in range(run):
            out[done + j] = arena[at + j]
        done += run
    return n


@kernel
def _clear_tree(arena: NDArray[np.int64], root: int, height: int) -> None:
    arena[STACK] = root
    arena[STACK + 1] = 0
    path = STACK
    while path >= STACK:
        node, i = arena[path], arena[path + 1]
        arena[path + 1] = i + 1
        if i == arena[node]:
            _release(arena, node, arena[node + 1])
            path -= 2
            continue
        child = arena[_links(arena, node) + i] >> LINK
        if path == STACK + 2 * height - 2:
            _release(arena, child, np.int64(LEAF))
        else:
            path += 2
            arena[path] = child
            arena[path + 1] = 0


@kernel
def clear(state: MultisetState, slot: int) -> None:
    """Forget all codes of `slot` and free its blocks."""
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    base, room = arena[at], arena[at + 1] & ROOM
    arena[VERSION] += 1
    arena[at] = 0
    arena[at + 1] = 0
    if room >= TREE:
        _clear_tree(arena, base, room - TREE)
    elif room > 0:
        _release(arena, base, room)


@inlined
def _copy(source: NDArray[np.int64], block: int, target: NDArray[np.int64], words: int) -> int:
    """Copy a block to another arena; return its address there."""
    copy = _allocate(target, words)
    for k in range(words):
        target[copy + k] = source[block + k]
    return copy


@kernel
def compact(arena: NDArray[np.int64], target: NDArray[np.int64]) -> None:
    """Copy all that is alive to the arena `target`, without gaps, slot by slot.

    The control words of `target` must be set up, its table of slots zero and at least as long.
    """
    for slot in range(arena[CAPACITY]):
        at = arena[SLOTS] + 2 * slot
        block, tag = arena[at], arena[at + 1]
        room = tag & ROOM
        if room == 0:
            continue
        block = _copy(arena, block, target, room if room < TREE else arena[block + 1])
        at = target[SLOTS] + 2 * slot
        target[at] = block
        target[at + 1] = tag
        target[STACK] = block
        target[STACK + 1] = 0
        path = STACK if room >= TREE else 0
        while path >= STACK:
            node, i = target[path], target[path + 1]
            target[path + 1] = i + 1
            if i == target[node]:
                path -= 2
                continue
            at = _links(target, node) + i
            child, count = target[at] >> LINK, target[at] & COUNT
            is_leaf = path == STACK + 2 * (room - TREE) - 2
            child = _copy(arena, child, target, LEAF if is_leaf else NODE)
            target[at] = child << LINK | count
            if not is_leaf:
                path += 2
                target[path] = child
                target[path + 1] = 0


@kernel
def apply_changes(
    state: MultisetState, slots: NDArray[np.int32], signs: NDArray[np.int8], codes: NDArray[np.int64]
) -> int:
    """Insert where the sign is positive, else remove; return the first row not found, or -1."""
    for row in range(slots.size):
        if row & (GROUP - 1) == 0:
            prefetch(state, slots, codes, row)
        if signs[row] > 0:
            insert(state, slots[row], codes[row], row)
        elif not remove(state, slots[row], codes[row], row):
            return row
    return -1


@kernel
def read_slots(
    state: MultisetState, slots: NDArray[np.int32], offsets: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """Write the codes of each slot, in order, to ``out[offsets[i] : offsets[i + 1]]``."""
    for i in range(slots.size):
        copy_range(state, slots[i], 0, offsets[i + 1] - offsets[i], out[offsets[i] : offsets[i + 1]])


@kernel
def code_floats(bits: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Turn the bits of floats into codes in their order; zero and NaN each have one code."""
    for row in range(bits.size):
        magnitude = bits[row] & MAGNITUDE
        if magnitude > INFINITY:
            out[row] = NOT_A_NUMBER
        else:
            out[row] = magnitude if bits[row] >= 0 or magnitude == 0 else ~magnitude


@kernel
def decode_floats(codes: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Turn codes into the bits of their floats."""
    for row in range(codes.size):
        out[row] = codes[row] ^ ((codes[row] >> 63) & MAGNITUDE)
