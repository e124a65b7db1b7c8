"""Ordered multisets of int64 codes, one per slot, in one arena.

Problem: minimum, percentile, first, last and top-k must forget rows again, for hundreds of thousands
of keys of which nearly all hold a few codes and some hold millions.

Idea: a small group is one sorted run in a block of 4, 8, ... 256 words of an arena (`multiset_blocks`). A group of
more than 256 codes is a B+ tree whose leaves count equal codes (`multiset_tree`).

Cost: waiting for memory decides, since few groups are in the cache, then branches that are guessed
wrong. A small group is its slot and the lines of its run; a tree of 100,000 different codes is a path through two
nodes and the 384 bytes of a leaf. So a loop that knows its operations beforehand calls `prefetch`, which
walks ahead.

The operations are kernels rather than inlined helpers, so that a fold that calls them finds them on
disk: it compiles in a second instead of five.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import always_inlined, inlined, kernel
from squill.engine.kernels.memory import prefetch_word
from squill.engine.kernels.multiset_blocks import (
    CAPACITY,
    FREE,
    LARGEST_RUN,
    LINE,
    ONE,
    ROOM,
    SLOTS,
    SMALLEST_RUN,
    STACK,
    TOP,
    TREE,
    VERSION,
    ByteStrings,
    MultisetState,
    allocate,
    move,
    rank,
    release,
)
from squill.engine.kernels.multiset_tree import (
    ENTRIES,
    LEAF,
    NODE,
    THIN_LEAF,
    add_code,
    add_times,
    address_of,
    clear_tree,
    codes_below,
    codes_of,
    copy_leaves,
    count,
    drop_code,
    entries_of,
    leaf_of,
    link_to,
    links_of,
    locate_in_tree,
    make_room,
    plant,
    set_first,
    thicken,
    times_of,
    walk,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "GROUP",
    "apply_changes",
    "clear",
    "compact",
    "copy_range",
    "insert",
    "kth",
    "largest",
    "locate",
    "move_table",
    "prefetch",
    "read_slots",
    "remove",
    "size",
    "size_and_run",
    "smallest",
]

SHORT = 16  # up to here a linear search beats all others
GROUP = 8  # how many operations `prefetch` takes at a time


@always_inlined
def _insert_sorted(arena: NDArray[np.int64], text: ByteStrings | None, base: int, n: int, code: int) -> None:
    """Insert into the `n` sorted codes at `base`."""
    if text is None and n <= SHORT:
        at = base + n
        while at > base and arena[u(at - 1)] > code:
            arena[u(at)] = arena[u(at - 1)]
            at -= 1
        arena[u(at)] = code
        return
    place = rank(arena, text, base, n, code)
    move(arena, base + place, base + place + 1, n - place)
    arena[u(base + place)] = code


@inlined
def _resize(arena: NDArray[np.int64], at: int, words: int) -> None:
    """Move the small group of the slot at address `at` to a block of `words`."""
    base, tag = arena[u(at)], arena[u(at + 1)]
    room = tag & ROOM
    block = allocate(arena, words)
    move(arena, base, block, tag >> 16)
    if room != 0:
        release(arena, base, room)
    arena[u(at)] = block
    arena[u(at + 1)] = tag - room + words


@inlined
def _small_remove(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> bool:
    base, tag = arena[u(at)], arena[u(at + 1)]
    n = tag >> 16
    if n <= SHORT:
        k, end = base, base + n
        while k < end and arena[u(k)] != code:
            k += 1
        if k == end:
            return False
        while k + 1 < end:
            arena[u(k)] = arena[u(k + 1)]
            k += 1
    else:
        after = rank(arena, text, base, n, code)
        if after == 0 or arena[u(base + after - 1)] != code:
            return False
        move(arena, base + after, base + after - 1, n - after)
    arena[u(at + 1)] = tag - ONE
    room = tag & ROOM
    if n == 1:
        release(arena, base, room)
        arena[u(at)] = 0
        arena[u(at + 1)] = 0
    elif n - 1 <= room >> 2 and room > SMALLEST_RUN:
        _resize(arena, at, room >> 1)
    return True


@kernel
def insert(state: MultisetState, slot: int, code: int, ticket: int) -> None:
    """Add one occurrence of `code` to the multiset of `slot`.

    The ticket is the operation's row where `prefetch` was called for it, else any number.
    """
    arena, text = state
    at = arena[SLOTS] + 2 * slot
    tag = arena[u(at + 1)]
    room, n = tag & ROOM, tag >> 16
    if room < TREE and n < LARGEST_RUN:
        if n == room:
            _resize(arena, at, max(2 * room, SMALLEST_RUN))
        _insert_sorted(arena, text, arena[u(at)], n, code)
        arena[u(at + 1)] += ONE
        return
    if room < TREE:
        plant(arena, text, at)
    path = walk(arena, text, at, code, ticket)
    leaf = leaf_of(arena, path)
    n = entries_of(arena, leaf)
    place = rank(arena, text, leaf, n, code)
    if place > 0 and arena[u(leaf + place - 1)] == code:
        add_times(arena, leaf, place - 1, 1)
    else:
        if n == ENTRIES:
            make_room(arena, text, at, code, leaf)
            path = walk(arena, text, at, code, ticket)
            leaf = leaf_of(arena, path)
            n = entries_of(arena, leaf)
            place = rank(arena, text, leaf, n, code)
        add_code(arena, text, leaf, n, place, code)
        if text is not None and place == 0:
            set_first(arena, path, code)
    count(arena, path, 1)


@kernel
def remove(state: MultisetState, slot: int, code: int, ticket: int) -> bool:
    """Take one occurrence of `code` away; return False, and change nothing, when there is none.

    The ticket is the operation's row where `prefetch` was called for it, else any number.
    """
    arena, text = state
    at = arena[SLOTS] + 2 * slot
    if (arena[u(at + 1)] & ROOM) < TREE:
        return _small_remove(arena, text, at, code)
    path = walk(arena, text, at, code, ticket)
    if codes_of(arena, path) <= THIN_LEAF:
        thicken(arena, text, at, code)
        if (arena[u(at + 1)] & ROOM) < TREE:
            return _small_remove(arena, text, at, code)
        path = walk(arena, text, at, code, ticket)
    leaf = leaf_of(arena, path)
    i = rank(arena, text, leaf, entries_of(arena, leaf), code) - 1
    if i < 0 or arena[u(leaf + i)] != code or times_of(arena, leaf, i) == 0:
        return False
    count(arena, path, -1)
    add_times(arena, leaf, i, -1)
    if text is not None and times_of(arena, leaf, i) == 0:
        drop_code(arena, path, leaf, i)
    return True


@kernel
def prefetch(state: MultisetState, changes: NDArray[np.int64], row: int) -> None:
    """Ask the memory for what the changes after `row` will touch; to be called before every eighth (`GROUP`).

    It looks ahead, for eight changes each: far ahead for the slots, nearer for their blocks,
    and nearest for the leaves. The walks to the leaves stand together so that they wait for memory together.
    Optional: it changes no multiset, and halves the time of a loop whose groups are not in the cache.
    """
    arena, text = state
    table, n = arena[SLOTS], changes.size >> 1
    for i in range(min(row + 3 * GROUP, n), min(row + 4 * GROUP, n)):
        prefetch_word(arena, table + 2 * (changes[u(2 * i)] >> 1))
    for i in range(min(row + 2 * GROUP, n), min(row + 3 * GROUP, n)):
        slot = changes[u(2 * i)] >> 1
        if slot == changes[u(2 * i - 2)] >> 1:
            continue
        at = table + 2 * slot
        base, room = arena[u(at)], arena[u(at + 1)] & ROOM
        for line in range(0, min(room, 64), LINE):
            prefetch_word(arena, base + line)
    for i in range(min(row + GROUP, n), min(row + 2 * GROUP, n)):
        at = table + 2 * (changes[u(2 * i)] >> 1)
        if (arena[u(at + 1)] & ROOM) >= TREE:
            leaf = leaf_of(arena, walk(arena, text, at, changes[u(2 * i + 1)], i))
            for line in range(0, LEAF, LINE):
                prefetch_word(arena, leaf + line)


@kernel
def size(state: MultisetState, slot: int) -> int:
    """Return how many codes the multiset of `slot` holds, repeated ones included."""
    arena = state[0]
    return arena[u(arena[SLOTS] + 2 * slot + 1)] >> 16


@always_inlined
def size_and_run(state: MultisetState, slot: int) -> tuple[int, int]:
    """Return how many codes `slot` holds and where they stand one after the other, or 0 when they do not."""
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    tag = arena[u(at + 1)]
    return tag >> 16, arena[u(at)] if (tag & ROOM) < TREE else np.int64(0)


@kernel
def locate(state: MultisetState, slot: int, k: int) -> tuple[int, int, int]:
    """Return the address of the code at position `k`, and the first and the last position where it is found.

    Not all positions of a code need be told.
    """
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    if (arena[u(at + 1)] & ROOM) < TREE:
        return arena[u(at)] + k, k, k
    return locate_in_tree(arena, at, k)


@kernel
def kth(state: MultisetState, slot: int, k: int) -> int:
    """Return the code at position `k` of `slot`, counted from 0; ``0 <= k < size`` must hold."""
    arena = state[0]
    return arena[locate(state, slot, k)[0]]


@kernel
def smallest(state: MultisetState, slot: int) -> int:
    """Return the first code of `slot`, which must not be empty."""
    return kth(state, slot, 0)


@kernel
def largest(state: MultisetState, slot: int) -> int:
    """Return the last code of `slot`, which must not be empty."""
    return kth(state, slot, size(state, slot) - 1)


@kernel
def copy_range(state: MultisetState, slot: int, k: int, n: int, out: NDArray[np.int64]) -> int:
    """Copy up to `n` codes from position `k` on, in order, to the front of `out`; return how many."""
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    n = max(min(n, size(state, slot) - k), 0)
    if (arena[at + 1] & ROOM) >= TREE:
        copy_leaves(arena, at, k, n, out)
    else:
        base = arena[at] + k
        for j in range(n):
            out[j] = arena[base + j]
    return n


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
        clear_tree(arena, base, room - TREE)
    elif room > 0:
        release(arena, base, room)


@kernel
def move_table(arena: NDArray[np.int64], slots: int) -> None:
    """Let there be so many slots, new ones at the end; where the old ones were are free blocks then.

    The arena must have room for them above all that was taken.
    """
    old, words, table = arena[SLOTS], 2 * arena[CAPACITY], arena[TOP]
    arena[TOP] = table + 2 * slots
    for k in range(2 * slots):
        arena[table + k] = arena[old + k] if k < words else 0
    arena[SLOTS] = table
    arena[CAPACITY] = slots
    arena[VERSION] += 1
    size = 64
    while words > 0:
        while size > words:
            size >>= 1
        kind = size >> 2
        arena[old] = arena[FREE + kind]
        arena[FREE + kind] = old
        old += size
        words -= size


@inlined
def _copy(source: NDArray[np.int64], block: int, target: NDArray[np.int64], words: int) -> int:
    """Copy a block to another arena; return its address there."""
    copy = allocate(target, words)
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
            at = links_of(target, node) + i
            child, codes = address_of(target[at]), codes_below(target[at])
            is_leaf = path == STACK + 2 * (room - TREE) - 2
            child = _copy(arena, child, target, LEAF if is_leaf else NODE)
            target[at] = link_to(child, codes)
            if not is_leaf:
                path += 2
                target[path] = child
                target[path + 1] = 0


@kernel
def apply_changes(state: MultisetState, changes: NDArray[np.int64]) -> int:
    """Make the changes; return the first that removes what is not there, or -1.

    Of the two words of a change the first is ``slot << 1 | is_insert``, the second the code.
    """
    for row in range(changes.size >> 1):
        if row & (GROUP - 1) == 0:
            prefetch(state, changes, row)
        slot, code = changes[2 * row] >> 1, changes[2 * row + 1]
        if changes[2 * row] & 1:
            insert(state, slot, code, row)
        elif not remove(state, slot, code, row):
            return row
    return -1


@kernel
def read_slots(
    state: MultisetState, slots: NDArray[np.int32], offsets: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """Write the codes of each slot, in order, to ``out[offsets[i] : offsets[i + 1]]``."""
    for i in range(slots.size):
        copy_range(state, slots[i], 0, offsets[i + 1] - offsets[i], out[offsets[i] : offsets[i + 1]])
