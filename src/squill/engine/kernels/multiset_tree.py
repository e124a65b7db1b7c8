"""Multisets of more than 256 codes: B+ trees in the arena, whose leaves count equal codes.

A leaf is a block of different codes in order, then how often each is there, two counts to a word; the last half
word says how many codes it has. A node is a block of 64 to 512 words: of each child a code, its address and how
many codes are below it. An operation walks to a leaf and changes a count there and those above; only where that
leaf is full or thin is the tree first split or merged, from the root down.

A number whose count came to zero stays until its leaf is full: it is where the next number beside it goes, so that
a window that slides over numbers seldom moves any. An id of a byte string may not stay, as it may become another
string.

Invariants: the code that a node has of a child is above all codes before that child, and not above its own; with
byte strings it is the child's first code. A leaf is never without codes. Only a root may have one child
alone, a leaf. A node of fewer than 512 words is the root of a tree of height 1.

`prefetch` in ``kernels.multiset`` walks ahead; the operation then takes the path that the walk has left. A leaf of
32 codes is 6 lines of the cache; of 64 it was slower, also for trees that are one level lower then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import always_inlined, inlined, kernel
from squill.engine.kernels.memory import memmove_halves
from squill.engine.kernels.multiset_blocks import (
    LARGEST_BLOCK,
    LARGEST_RUN,
    N_PATHS,
    ONE,
    PATH,
    PATHS,
    ROOM,
    SMALLEST_RUN,
    STACK,
    TREE,
    VERSION,
    ByteStrings,
    allocate,
    move,
    rank,
    release,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ENTRIES",
    "FANOUT",
    "FIRSTS",
    "LEAF",
    "MOST_CODES",
    "NODE",
    "THIN_LEAF",
    "add_code",
    "add_times",
    "address_of",
    "clear_tree",
    "codes_below",
    "codes_of",
    "copy_leaves",
    "count",
    "drop_code",
    "entries_of",
    "leaf_of",
    "link_to",
    "links_of",
    "locate_in_tree",
    "make_room",
    "plant",
    "set_first",
    "thicken",
    "times_of",
    "walk",
]

# A leaf: codes, then counts. The last of the counts is the number of codes.
COUNTS = 32
LEAF = COUNTS + COUNTS // 2
ENTRIES = COUNTS - 1
CROWDED = 3 * ENTRIES // 4  # a leaf with more than these is not worth being merged, and is split when it is full
THIN_LEAF = COUNTS // 4
FEW = 32  # a tree of one leaf with no more codes becomes a run
HALF = 32
LOW = (1 << HALF) - 1

# A node: the number of children and the block's size, a code for each child, and from the middle on a link to
# each child. A link: the child's address, of which the last three bits are zero, << LINK | the number of codes.
SMALLEST_NODE = 64
NODE = LARGEST_BLOCK
FIRSTS = 2
LINK = 28
MOST_CODES = (1 << LINK + 3) - 1
FANOUT = NODE // 2 - 1
THIN_NODE = FANOUT // 4
LEAST = -(2**63)

# A path: the slot's address, the code, the version for which it holds, the leaf, the address of its last step, and
# for each level a step: the address of the link, the node and the number of the child. There is room for six levels.
PATH_CODE = 1
PATH_VERSION = 2
PATH_LEAF = 3
PATH_LAST = 4
STEPS = 5
STEP = 3


@always_inlined
def links_of(arena: NDArray[np.int64], node: int) -> int:
    """Return the address of a node's first link."""
    return node + 1 + (arena[u(node + 1)] >> 1)


@always_inlined
def address_of(link: int) -> int:
    """Return the address of the child that a link leads to."""
    return (link >> LINK) & ~7


@always_inlined
def codes_below(link: int) -> int:
    """Return how many codes are below a link."""
    return link & MOST_CODES


@always_inlined
def link_to(block: int, codes: int) -> int:
    return block << LINK | codes


@always_inlined
def _child_of(arena: NDArray[np.int64], text: ByteStrings | None, node: int, code: int) -> int:
    """Return the number of the child that may hold `code`."""
    return max(rank(arena, text, node + FIRSTS, arena[u(node)], code) - 1, 0)


# -- leaves -------------------------------------------------------------------------------------------------


@always_inlined
def entries_of(arena: NDArray[np.int64], leaf: int) -> int:
    """Return how many different codes a leaf has, those with a count of zero included."""
    return arena[u(leaf + LEAF - 1)] >> HALF


@always_inlined
def _set_entries(arena: NDArray[np.int64], leaf: int, n: int) -> None:
    arena[u(leaf + LEAF - 1)] = arena[u(leaf + LEAF - 1)] & LOW | n << HALF


@always_inlined
def times_of(arena: NDArray[np.int64], leaf: int, i: int) -> int:
    """Return how often a leaf has its i-th code."""
    return arena[u(leaf + COUNTS + (i >> 1))] >> ((i & 1) << 5) & LOW


@always_inlined
def add_times(arena: NDArray[np.int64], leaf: int, i: int, by: int) -> None:
    arena[u(leaf + COUNTS + (i >> 1))] += by << ((i & 1) << 5)


@always_inlined
def _set_times(arena: NDArray[np.int64], leaf: int, i: int, times: int) -> None:
    add_times(arena, leaf, i, times - times_of(arena, leaf, i))


@always_inlined
def _move_entries(arena: NDArray[np.int64], source: int, i: int, target: int, j: int, n: int) -> None:
    if n > 0:
        move(arena, source + i, target + j, n)
        memmove_halves(arena, 2 * (source + COUNTS) + i, 2 * (target + COUNTS) + j, n)


@inlined
def _purge(arena: NDArray[np.int64], leaf: int) -> int:
    """Let go of the codes of a leaf that are not there any more; return how many are left."""
    n = 0
    for i in range(entries_of(arena, leaf)):
        times = times_of(arena, leaf, i)
        arena[leaf + n] = arena[leaf + i]
        _set_times(arena, leaf, n, times)
        n += times > 0
    _set_entries(arena, leaf, n)
    return n


# -- blocks of either kind: leaves are level 0 ----------------------------------------------------------------


@inlined
def _held(arena: NDArray[np.int64], level: int, block: int) -> int:
    """Return how many codes or children a block has."""
    return entries_of(arena, block) if level == 0 else arena[block]


@inlined
def _hold(arena: NDArray[np.int64], level: int, block: int, n: int) -> None:
    if level == 0:
        _set_entries(arena, block, n)
    else:
        arena[block] = n


@inlined
def _transfer(arena: NDArray[np.int64], level: int, source: int, i: int, target: int, j: int, n: int) -> int:
    """Move `n` codes or children, from the i-th on, to the j-th place; return how many codes that is."""
    codes = 0
    if level == 0:
        for k in range(i, i + n):
            codes += times_of(arena, source, k)
        _move_entries(arena, source, i, target, j, n)
        return codes
    links, to = links_of(arena, source) + i, links_of(arena, target) + j
    for k in range(n):
        codes += arena[links + k] & MOST_CODES
    move(arena, links, to, n)
    move(arena, source + FIRSTS + i, target + FIRSTS + j, n)
    return codes


@inlined
def _shift_children(arena: NDArray[np.int64], node: int, k: int, by: int) -> None:
    """Move the children from the k-th on by one place; a node has one child more or less then."""
    links, n = links_of(arena, node), arena[node] - k
    move(arena, node + FIRSTS + k, node + FIRSTS + k + by, n)
    move(arena, links + k, links + k + by, n)
    arena[node] += by


@inlined
def _new_leaf(arena: NDArray[np.int64]) -> int:
    leaf = allocate(arena, np.int64(LEAF))
    for k in range(leaf + COUNTS, leaf + LEAF):
        arena[k] = 0
    return leaf


@inlined
def _new_node(arena: NDArray[np.int64], words: int, children: int) -> int:
    node = allocate(arena, words)
    arena[node] = children
    arena[node + 1] = words
    return node


@inlined
def _split(arena: NDArray[np.int64], node: int, k: int, level: int, keep: int) -> None:
    """Move all but `keep` of what the full k-th child holds to a new child after it."""
    link = links_of(arena, node) + k
    child = address_of(arena[link])
    n = _held(arena, level, child)
    fresh = _new_leaf(arena) if level == 0 else _new_node(arena, np.int64(NODE), 0)
    codes = _transfer(arena, level, child, keep, fresh, 0, n - keep)
    _hold(arena, level, child, keep)
    _hold(arena, level, fresh, n - keep)
    arena[link] -= codes
    _shift_children(arena, node, k + 1, 1)
    arena[node + FIRSTS + k + 1] = arena[fresh + (FIRSTS if level > 0 else 0)]
    arena[link + 1] = link_to(fresh, codes)


@inlined
def _even(arena: NDArray[np.int64], node: int, k: int, level: int) -> None:
    """Merge the k-th child and the next, or share evenly what one child should not hold."""
    link = links_of(arena, node) + k
    left, right = address_of(arena[link]), address_of(arena[link + 1])
    if level == 0:
        n, m, room, first = _purge(arena, left), _purge(arena, right), CROWDED, 0
    else:
        n, m, room, first = arena[left], arena[right], FANOUT, FIRSTS
    target = n + m if n + m <= room else (n + m) >> 1
    if n < target:
        moved = _transfer(arena, level, right, 0, left, n, target - n)
        _transfer(arena, level, right, target - n, right, 0, n + m - target)
    else:
        _transfer(arena, level, right, 0, right, n - target, m)
        moved = -_transfer(arena, level, left, target, right, 0, n - target)
    _hold(arena, level, left, target)
    _hold(arena, level, right, n + m - target)
    arena[link] += moved
    arena[link + 1] -= moved
    arena[node + FIRSTS + k + 1] = arena[right + first]
    if target == n + m:
        release(arena, right, arena[right + 1] if level > 0 else LEAF)
        _shift_children(arena, node, k + 2, -1)


# -- roots ----------------------------------------------------------------------------------------------------


@inlined
def _resize_root(arena: NDArray[np.int64], at: int, words: int) -> int:
    """Move the root of the slot at address `at` to a block of `words`; return its address."""
    old = arena[at]
    root = _new_node(arena, words, arena[old])
    _transfer(arena, np.int64(1), old, 0, root, 0, arena[old])
    release(arena, old, arena[old + 1])
    arena[at] = root
    return root


@inlined
def _raise_root(arena: NDArray[np.int64], at: int) -> int:
    """Put a root with one child, the old root, on the slot at `at`; return its address."""
    old = arena[at]
    root = _new_node(arena, np.int64(NODE), 1)
    arena[root + FIRSTS] = arena[old + FIRSTS]
    arena[links_of(arena, root)] = link_to(old, arena[at + 1] >> 16)
    arena[at] = root
    arena[at + 1] += 1
    return root


@kernel
def plant(arena: NDArray[np.int64], text: ByteStrings | None, at: int) -> None:
    """Let the full run of the slot at `at` become a tree."""
    run, codes = arena[at], arena[at + 1] >> 16
    different = 1
    for k in range(1, codes):
        different += arena[run + k] != arena[run + k - 1]
    leaves = -(-different // CROWDED)
    root = _new_node(arena, np.int64(SMALLEST_NODE), leaves)
    links = links_of(arena, root)
    k = 0
    for child in range(leaves):
        leaf = _new_leaf(arena)
        entries = different * (child + 1) // leaves - different * child // leaves
        arena[root + FIRSTS + child] = arena[run + k] if text is not None or child > 0 else LEAST
        before = k
        for i in range(entries):
            first = k
            while k < codes and arena[run + k] == arena[run + first]:
                k += 1
            arena[leaf + i] = arena[run + first]
            _set_times(arena, leaf, i, k - first)
        _set_entries(arena, leaf, entries)
        arena[links + child] = link_to(leaf, k - before)
    release(arena, run, np.int64(LARGEST_RUN))
    arena[at] = root
    arena[at + 1] = codes << 16 | (TREE + 1)


@inlined
def _fell(arena: NDArray[np.int64], at: int) -> None:
    """Let a tree of one leaf with few codes become a run."""
    root, codes = arena[at], arena[at + 1] >> 16
    leaf = address_of(arena[links_of(arena, root)])
    words = SMALLEST_RUN
    while words < codes:
        words *= 2
    run = allocate(arena, words)
    k = 0
    for i in range(entries_of(arena, leaf)):
        for _ in range(times_of(arena, leaf, i)):
            arena[run + k] = arena[leaf + i]
            k += 1
    release(arena, leaf, np.int64(LEAF))
    release(arena, root, arena[root + 1])
    arena[at] = run
    arena[at + 1] = codes << 16 | words


# -- paths ----------------------------------------------------------------------------------------------------


@kernel
def _new_path(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int, path: int) -> None:
    """Walk to the leaf of `code` in the tree of the slot at address `at`, and write down the path."""
    node, step = arena[u(at)], path + STEPS
    for _ in range((arena[u(at + 1)] & ROOM) - TREE):
        k = _child_of(arena, text, node, code)
        link = links_of(arena, node) + k
        arena[u(step)] = link
        if text is not None:
            arena[u(step + 1)] = node
            arena[u(step + 2)] = k
        step += STEP
        node = address_of(arena[u(link)])
    arena[u(path)] = at
    arena[u(path + PATH_CODE)] = code
    arena[u(path + PATH_VERSION)] = arena[VERSION]
    arena[u(path + PATH_LEAF)] = node
    arena[u(path + PATH_LAST)] = step - STEP


@always_inlined
def walk(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int, ticket: int) -> int:
    """Return the address of the path to the leaf of `code` in the tree of the slot at address `at`.

    The walk is made once, by `prefetch` if it was called, and remembered until a path may be another.
    """
    path = PATHS + PATH * (ticket & (N_PATHS - 1))
    if arena[u(path)] != at or arena[u(path + PATH_CODE)] != code or arena[u(path + PATH_VERSION)] != arena[VERSION]:
        _new_path(arena, text, at, code, path)
    return path


@always_inlined
def leaf_of(arena: NDArray[np.int64], path: int) -> int:
    """Return the address of the leaf of a path."""
    return arena[u(path + PATH_LEAF)]


@always_inlined
def codes_of(arena: NDArray[np.int64], path: int) -> int:
    """Return how many codes the leaf of a path has."""
    return arena[u(arena[u(arena[u(path + PATH_LAST)])])] & MOST_CODES


@always_inlined
def count(arena: NDArray[np.int64], path: int, by: int) -> None:
    """Let there be one code more or less in the leaf of a path."""
    for step in range(path + STEPS, arena[u(path + PATH_LAST)] + 1, STEP):
        arena[u(arena[u(step)])] += by
    arena[u(arena[u(path)] + 1)] += by * ONE


@inlined
def set_first(arena: NDArray[np.int64], path: int, code: int) -> None:
    """Let `code` be the first of the leaf of a path, and of every node whose first leaf that is."""
    step = arena[path + PATH_LAST]
    arena[arena[step + 1] + FIRSTS + arena[step + 2]] = code
    while step > path + STEPS and arena[step + 2] == 0:
        step -= STEP
        arena[arena[step + 1] + FIRSTS + arena[step + 2]] = code


# -- operations -------------------------------------------------------------------------------------------------


@kernel
def make_room(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int, leaf: int) -> None:
    """Let the full leaf of `code` have room: purge it or, when that is not enough, split it.

    Then no node on the way may be full either.
    """
    if _purge(arena, leaf) <= CROWDED:
        return
    arena[VERSION] += 1
    node = arena[at]
    if arena[node] == (arena[node + 1] >> 1) - 1:
        node = _resize_root(arena, at, 2 * arena[node + 1]) if arena[node + 1] < NODE else _raise_root(arena, at)
    rightmost = True
    for level in range((arena[at + 1] & ROOM) - TREE - 1, -1, -1):
        k = _child_of(arena, text, node, code)
        rightmost = rightmost and k == arena[node] - 1
        child = address_of(arena[links_of(arena, node) + k])
        if level > 0:
            if arena[child] == FANOUT:
                _split(arena, node, k, level, FANOUT // 2)
        else:
            # Codes that only grow, such as arrival numbers, leave nearly full leaves behind.
            n = entries_of(arena, child)
            appends = rightmost and rank(arena, text, child, n, code) == n
            _split(arena, node, k, level, n - 1 if appends else n // 2)
        node = address_of(arena[links_of(arena, node) + _child_of(arena, text, node, code)])


@kernel
def thicken(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> None:
    """Leave no thin block on the way to the leaf of `code`; a root with one child gives way to it."""
    arena[VERSION] += 1
    node = arena[at]
    height = (arena[at + 1] & ROOM) - TREE
    if height == 1 and arena[node + 1] > SMALLEST_NODE and arena[node] <= arena[node + 1] >> 3:
        node = _resize_root(arena, at, arena[node + 1] >> 1)
    for level in range(height - 1, -1, -1):
        k = _child_of(arena, text, node, code)
        link = arena[links_of(arena, node) + k]
        thin = link & MOST_CODES <= THIN_LEAF if level == 0 else arena[address_of(link)] <= THIN_NODE
        if thin and arena[node] > 1:
            _even(arena, node, min(k, arena[node] - 2), level)
            link = arena[links_of(arena, node) + _child_of(arena, text, node, code)]
        if arena[node] == 1:  # only a root has so few
            if level > 0:
                arena[at] = address_of(link)
                arena[at + 1] -= 1
                release(arena, node, arena[node + 1])
            elif link & MOST_CODES <= FEW:
                _fell(arena, at)
        node = address_of(link)


@inlined
def add_code(arena: NDArray[np.int64], text: ByteStrings | None, leaf: int, n: int, place: int, code: int) -> None:
    """Let a leaf that is not full have one more code, once, at that place."""
    if text is None:
        if place > 0 and times_of(arena, leaf, place - 1) == 0:
            arena[u(leaf + place - 1)] = code
            add_times(arena, leaf, place - 1, 1)
            return
        if place < n and times_of(arena, leaf, place) == 0:
            arena[u(leaf + place)] = code
            add_times(arena, leaf, place, 1)
            return
    _move_entries(arena, leaf, place, leaf, place + 1, n - place)
    arena[u(leaf + place)] = code
    _set_times(arena, leaf, place, 1)
    _set_entries(arena, leaf, n + 1)


@inlined
def drop_code(arena: NDArray[np.int64], path: int, leaf: int, i: int) -> None:
    """Let a leaf of byte strings lose its i-th code."""
    n = entries_of(arena, leaf)
    _move_entries(arena, leaf, i + 1, leaf, i, n - i - 1)
    _set_entries(arena, leaf, n - 1)
    if i == 0:
        arena[VERSION] += 1
        set_first(arena, path, arena[leaf])


@inlined
def _leaf_at(arena: NDArray[np.int64], at: int, k: int) -> tuple[int, int, int]:
    """Return the leaf with position `k`, which position of its own that is, and how many codes it has."""
    node, tag = arena[u(at)], arena[u(at + 1)]
    n = tag >> 16
    for _ in range((tag & ROOM) - TREE):
        link = links_of(arena, node)
        if 2 * k < n:
            while k >= arena[u(link)] & MOST_CODES:
                k -= arena[u(link)] & MOST_CODES
                link += 1
        else:  # from the back, which is where large percentiles and top-k look
            k -= n
            link += arena[u(node)]
            while k < 0:
                link -= 1
                k += arena[u(link)] & MOST_CODES
        node, n = address_of(arena[u(link)]), arena[u(link)] & MOST_CODES
    return node, k, n


@inlined
def _entry_at(arena: NDArray[np.int64], leaf: int, k: int, codes: int) -> tuple[int, int]:
    """Return which code of a leaf is at position `k`, and how many are before it; the leaf has so many codes."""
    if 2 * k < codes:
        i, before = 0, 0
        times = times_of(arena, leaf, i)
        while before + times <= k:
            before += times
            i += 1
            times = times_of(arena, leaf, i)
        return i, before
    i, before = entries_of(arena, leaf), codes
    while before > k:
        i -= 1
        before -= times_of(arena, leaf, i)
    return i, before


@kernel
def locate_in_tree(arena: NDArray[np.int64], at: int, k: int) -> tuple[int, int, int]:
    """Return the address of the code at position `k`, and the first and the last position that it has."""
    leaf, own, codes = _leaf_at(arena, at, k)
    i, before = _entry_at(arena, leaf, own, codes)
    first = k - own + before
    return leaf + i, first, first + times_of(arena, leaf, i) - 1


@kernel
def copy_leaves(arena: NDArray[np.int64], at: int, k: int, n: int, out: NDArray[np.int64]) -> None:
    """Copy `n` codes from position `k` on to the front of `out`."""
    done = 0
    while done < n:
        leaf, own, codes = _leaf_at(arena, at, k + done)
        i, before = _entry_at(arena, leaf, own, codes)
        stop = min(done + codes - own, n)
        until = done + before - own  # where in `out` the codes of entry i end
        while done < stop:
            until += times_of(arena, leaf, i)
            while done < min(until, stop):
                out[done] = arena[leaf + i]
                done += 1
            i += 1


@kernel
def clear_tree(arena: NDArray[np.int64], root: int, height: int) -> None:
    arena[STACK] = root
    arena[STACK + 1] = 0
    path = STACK
    while path >= STACK:
        node, i = arena[path], arena[path + 1]
        arena[path + 1] = i + 1
        if i == arena[node]:
            release(arena, node, arena[node + 1])
            path -= 2
            continue
        child = address_of(arena[links_of(arena, node) + i])
        if path == STACK + 2 * height - 2:
            release(arena, child, np.int64(LEAF))
        else:
            path += 2
            arena[path] = child
            arena[path + 1] = 0
