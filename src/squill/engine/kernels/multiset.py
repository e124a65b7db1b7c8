"""Ordered multisets of int64 codes, one per slot, in one arena.

Problem: minimum, percentile, first, last and top-k must forget rows again, for hundreds of thousands
of keys of which nearly all hold a few codes and some hold millions.

Idea: a small group is one sorted run in a block of 4, 8, ... 64 words of an arena. A group of more
than 64 codes is a B+ tree: its leaves are blocks of 64 words, its nodes blocks of 64 to 512 words with
the first code, the address and the number of codes of each child. Freed blocks wait in one list per
size. Trees are split and merged on the way down, so only the counts of a removal walk back up.

Invariants: a node's entry holds exactly the first code and the number of codes below it; a root has
two children or more; a leaf is never empty; a node of fewer than 512 words is the root of a tree of
height 1. An operation takes no more words than `reserve` in ``squill.engine.multiset`` has promised
it, so no operation can fail.

Cost: memory traffic decides, since few groups are in the cache. A small group is its slot and the
lines of its run; a tree of 100,000 codes is a path through two nodes and the 512 bytes of a leaf.

The arena is one int64 array: control words, the table of slots, then blocks. Codes are compared as
integers or, when the state carries byte strings, as ids of byte strings by their bytes; equal strings
must have equal ids. Which of the two is part of the state's type, so each is compiled by itself.

The operations are kernels rather than inlined helpers, so that a fold that calls them finds them on
disk: it compiles in a second instead of five. LLVM inlines them all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import borrow, memmove, prefetch_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BLOCKS",
    "CAPACITY",
    "FREE",
    "HEADER",
    "LEAF",
    "NODE",
    "SLOTS",
    "SMALLEST",
    "TOP",
    "ByteStrings",
    "MultisetState",
    "apply_changes",
    "borrowed",
    "clear",
    "code_floats",
    "compact",
    "copy_range",
    "insert",
    "kth",
    "largest",
    "prefetch",
    "read_slots",
    "remove",
    "size",
    "smallest",
]

SMALLEST = 4
LEAF = 64
NODE = 512
SHORT = 16  # up to here a linear search beats all others

# A node: the number of children and the block's size, then for each child its first code, address and
# number of codes.
ENTRIES = 2
CHILD = 1
COUNT = 2
ENTRY = 3
FANOUT = (NODE - ENTRIES) // ENTRY
THIN_LEAF = LEAF // 4
THIN_NODE = FANOUT // 4

# Control words. FREE and BLOCKS are indexed by block size / 4: the head of the free list (0 when empty)
# and the number of blocks in use.
TOP = 0
SLOTS = 1
CAPACITY = 2
PATH = 8
FREE = 40
BLOCKS = FREE + NODE // 4 + 1
HEADER = BLOCKS + NODE // 4 + 1

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


@inlined
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
        arena[TOP] = block + words
    arena[BLOCKS + kind] += 1
    return block


@inlined
def _release(arena: NDArray[np.int64], block: int, words: int) -> None:
    kind = words >> 2
    arena[block] = arena[FREE + kind]
    arena[FREE + kind] = block
    arena[BLOCKS + kind] -= 1


@inlined
def _rank_bytes(arena: NDArray[np.int64], text: ByteStrings, base: int, n: int, stride: int, code: int) -> int:
    data, starts, lengths = text
    start, length = starts[code], lengths[code]
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        other = arena[base + stride * middle]
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


@inlined
def _rank(arena: NDArray[np.int64], text: ByteStrings | None, base: int, n: int, code: int) -> int:
    """Return how many of the `n` sorted codes at `base` are at most `code`."""
    if text is not None:
        return _rank_bytes(arena, text, base, n, np.int64(1), code)
    # Every 16th code, then the 16: no branch on the data, and two waits for memory instead of six.
    # Unsigned, because numba wraps signed indices around.
    start, steps, rest = np.uint64(base), np.uint64(0), np.uint64(0)
    for k in range(np.uint64(15), np.uint64(n), np.uint64(16)):
        steps += np.uint64(arena[start + k] <= code)
    steps <<= np.uint64(4)
    start += steps
    for k in range(min(np.uint64(n) - steps, np.uint64(16))):
        rest += np.uint64(arena[start + np.uint64(k)] <= code)
    return np.int64(steps + rest)


@inlined
def _entry_of(arena: NDArray[np.int64], text: ByteStrings | None, node: int, code: int) -> int:
    """Return the address of the entry of the last child that may hold `code`."""
    n = arena[node]
    if text is not None:
        rank = _rank_bytes(arena, text, node + ENTRIES, n, np.int64(ENTRY), code)
        return node + ENTRIES + ENTRY * max(rank - 1, 0)
    at, left = np.uint64(node + ENTRIES), np.uint64(n)
    while left > np.uint64(1):  # a select per halving, no branch on the data
        half = left >> np.uint64(1)
        step = np.uint64(ENTRY) * half
        at += step * np.uint64(arena[at + step] <= code)
        left -= half
    return np.int64(at)


@inlined
def _insert_sorted(arena: NDArray[np.int64], text: ByteStrings | None, base: int, n: int, code: int) -> None:
    if text is None and n <= SHORT:
        one = np.uint64(1)
        start, at = np.uint64(base), np.uint64(base + n)
        while at > start and arena[at - one] > code:
            arena[at] = arena[at - one]
            at -= one
        arena[at] = code
    else:
        rank = _rank(arena, text, base, n, code)
        _move(arena, base + rank, base + rank + 1, n - rank)
        arena[base + rank] = code


@inlined
def _transfer(arena: NDArray[np.int64], level: int, source: int, target: int, n: int) -> int:
    """Move `n` codes of leaves, which are level 0, or entries of nodes; return how many codes that is."""
    if level == 0:
        _move(arena, source, target, n)
        return n
    codes = 0
    for k in range(n):
        codes += arena[source + ENTRY * k + COUNT]
    _move(arena, source, target, ENTRY * n)
    return codes


@inlined
def _split(arena: NDArray[np.int64], node: int, entry: int, level: int, keep: int, code: int) -> None:
    """Move all but `keep` of what the full child of an entry holds to a new child after it.

    A new leaf that gets nothing is about to get `code`.
    """
    child = arena[entry + CHILD]
    if level == 0:
        fresh = _allocate(arena, np.int64(LEAF))
        codes = _transfer(arena, level, child + keep, fresh, LEAF - keep)
        first = arena[fresh] if keep < LEAF else code
    else:
        fresh = _allocate(arena, np.int64(NODE))
        source, target = child + ENTRIES + ENTRY * keep, fresh + ENTRIES
        codes = _transfer(arena, level, source, target, FANOUT - keep)
        arena[child] = keep
        arena[fresh] = FANOUT - keep
        arena[fresh + 1] = NODE
        first = arena[target]
    arena[entry + COUNT] -= codes
    entry += ENTRY
    _move(arena, entry, entry + ENTRY, node + ENTRIES + ENTRY * arena[node] - entry)
    arena[node] += 1
    arena[entry] = first
    arena[entry + CHILD] = fresh
    arena[entry + COUNT] = codes


@inlined
def _even(arena: NDArray[np.int64], node: int, entry: int, level: int) -> None:
    """Merge the children of an entry and the next, or share evenly what one child cannot hold."""
    left, right = arena[entry + CHILD], arena[entry + ENTRY + CHILD]
    n, m, room, width = arena[entry + COUNT], arena[entry + ENTRY + COUNT], LEAF, 1
    a, b = left, right
    if level > 0:
        n, m, room, width = arena[left], arena[right], FANOUT, ENTRY
        a, b = left + ENTRIES, right + ENTRIES
    target = n + m if n + m <= room else (n + m) >> 1
    if n < target:
        moved = _transfer(arena, level, b, a + width * n, target - n)
        _move(arena, b + width * (target - n), b, width * (n + m - target))
    else:
        _move(arena, b, b + width * (n - target), width * m)
        moved = -_transfer(arena, level, a + width * target, b, n - target)
    if level > 0:
        arena[left] = target
        arena[right] = n + m - target
    arena[entry + COUNT] += moved
    entry += ENTRY
    arena[entry + COUNT] -= moved
    arena[entry] = arena[b]
    if target == n + m:
        _release(arena, right, arena[right + 1] if level > 0 else LEAF)
        arena[node] -= 1
        _move(arena, entry + ENTRY, entry, node + ENTRIES + ENTRY * arena[node] - entry)


@inlined
def _resize_root(arena: NDArray[np.int64], at: int, words: int) -> int:
    """Move the root of the slot at address `at` to a block of `words`; return its address."""
    old = arena[at]
    root = _allocate(arena, words)
    _move(arena, old, root, ENTRIES + ENTRY * arena[old])
    _release(arena, old, arena[old + 1])
    arena[root + 1] = words
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
    arena[root + ENTRIES] = arena[old + ENTRIES] if height > 0 else arena[old]
    arena[root + ENTRIES + CHILD] = old
    arena[root + ENTRIES + COUNT] = n
    arena[at] = root
    arena[at + 1] = n << 16 | (TREE + height + 1)
    return root


@kernel
def _tree_insert(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> None:
    """Insert into the group of the slot at address `at`: a tree, or a full leaf that becomes one."""
    node, n = arena[at], arena[at + 1] >> 16
    height = max((arena[at + 1] & ROOM) - TREE, 0)
    if height > 0 and arena[node] == (arena[node + 1] - ENTRIES) // ENTRY and arena[node + 1] < NODE:
        node = _resize_root(arena, at, 2 * arena[node + 1])
    elif height == 0 or arena[node] == FANOUT:
        node = _raise_root(arena, at, height)
        height += 1
    rightmost = True
    for level in range(height - 1, -1, -1):
        entry = _entry_of(arena, text, node, code)
        rightmost = rightmost and entry == node + ENTRIES + ENTRY * (arena[node] - 1)
        n = arena[entry + COUNT]
        keep = 0
        if level > 0:
            if arena[arena[entry + CHILD]] == FANOUT:
                keep = FANOUT // 2
        elif n == LEAF:
            # Codes that only grow, such as arrival numbers, leave full leaves behind.
            appends = rightmost and _rank(arena, text, arena[entry + CHILD], n, code) == LEAF
            keep = LEAF if appends else LEAF // 2
        if keep > 0:
            _split(arena, node, entry, level, keep, code)
            entry = _entry_of(arena, text, node, code)
            n = arena[entry + COUNT]
        arena[entry + COUNT] = n + 1
        if entry == node + ENTRIES and _rank(arena, text, entry, np.int64(1), code) == 0:
            arena[entry] = code
        node = arena[entry + CHILD]
    _insert_sorted(arena, text, node, n, code)
    arena[at + 1] += ONE


@inlined
def _thicken(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> int:
    """Walk to the leaf of `code`, leaving no thin block on the way; return the height of the tree.

    The entries on the path are left in the control words. A root with one child gives way to it.
    """
    node, tag = arena[at], arena[at + 1]
    height = (tag & ROOM) - TREE
    if height == 1 and arena[node + 1] > LEAF and arena[node] <= arena[node + 1] // (4 * ENTRY):
        node = _resize_root(arena, at, arena[node + 1] >> 1)
    path = PATH
    for level in range(height - 1, -1, -1):
        entry = _entry_of(arena, text, node, code)
        if level == 0:
            thin = arena[entry + COUNT] <= THIN_LEAF
        else:
            thin = arena[arena[entry + CHILD]] <= THIN_NODE
        if thin:
            last = node + ENTRIES + ENTRY * (arena[node] - 1)
            _even(arena, node, entry if entry < last else entry - ENTRY, level)
            entry = _entry_of(arena, text, node, code)
        child = arena[entry + CHILD]
        if arena[node] == 1:  # only a root has so few
            height -= 1
            arena[at] = child
            arena[at + 1] = (tag & ~ROOM) | (TREE + height if height > 0 else LEAF)
            _release(arena, node, arena[node + 1])
        else:
            arena[path] = entry
            arena[path + 1] = entry - node - ENTRIES
            path += 2
        node = child
    return height


@kernel
def _tree_remove(arena: NDArray[np.int64], text: ByteStrings | None, at: int, code: int) -> bool:
    height = _thicken(arena, text, at, code)
    if height == 0:
        return _small_remove(arena, text, at, code)
    path = PATH + 2 * height - 2
    entry = arena[path]
    leaf, n = arena[entry + CHILD], arena[entry + COUNT]
    k = _rank(arena, text, leaf, n, code) - 1
    if k < 0 or arena[leaf + k] != code:
        return False
    _move(arena, leaf + k + 1, leaf + k, n - k - 1)
    while path >= PATH:
        entry = arena[path]
        arena[entry + COUNT] -= 1
        if k == 0:
            arena[entry] = arena[leaf]
            k = arena[path + 1]
        path -= 2
    arena[at + 1] -= ONE
    return True


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
def borrowed(state: MultisetState) -> MultisetState:
    """Return the state as a view that owns nothing; a kernel with a loop calls this once, first.

    Without it every operation counts references to the arrays up and down, atomically.
    """
    return MultisetState(borrow(state[0]), _borrow_text(state[1]))


@inlined
def _borrow_text(text: ByteStrings | None) -> ByteStrings | None:
    if text is None:
        return None
    return ByteStrings(borrow(text[0]), borrow(text[1]), borrow(text[2]))


@kernel
def insert(state: MultisetState, slot: int, code: int) -> None:
    """Add one occurrence of `code` to the multiset of `slot`."""
    arena, text = state
    at = arena[SLOTS] + 2 * slot
    tag = arena[at + 1]
    room, n = tag & ROOM, tag >> 16
    if room >= TREE or n == LEAF:
        _tree_insert(arena, text, at, code)
        return
    if n == room:
        _resize(arena, at, max(2 * room, SMALLEST))
    _insert_sorted(arena, text, arena[at], n, code)
    arena[at + 1] += ONE


@kernel
def remove(state: MultisetState, slot: int, code: int) -> bool:
    """Take one occurrence of `code` away; return False, and change nothing, when there is none."""
    arena, text = state
    at = arena[SLOTS] + 2 * slot
    if (arena[at + 1] & ROOM) < TREE:
        return _small_remove(arena, text, at, code)
    return _tree_remove(arena, text, at, code)


@kernel
def prefetch(state: MultisetState, slots: NDArray[np.int32], codes: NDArray[np.int64], row: int) -> None:
    """Ask the memory, in three steps, for what the operations 24, 16 and 8 rows after `row` will touch.

    Optional: it changes nothing, and halves the time of a loop whose groups are not in the cache.
    """
    arena, text = state
    table = arena[SLOTS]
    if row + 24 < slots.size:
        prefetch_word(arena, table + 2 * slots[row + 24])
        base = arena[table + 2 * slots[row + 16]]
        for line in range(0, 16, 8):
            prefetch_word(arena, base + line)
        at = table + 2 * slots[row + 8]
        if (arena[at + 1] & ROOM) >= TREE:
            leaf = arena[_entry_of(arena, text, arena[at], codes[row + 8]) + CHILD]
            for line in range(0, LEAF, 8):
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
    return arena[arena[at] + (ENTRIES if (arena[at + 1] & ROOM) >= TREE else 0)]


@kernel
def largest(state: MultisetState, slot: int) -> int:
    """Return the last code of `slot`, which must not be empty."""
    arena = state[0]
    at = arena[SLOTS] + 2 * slot
    node, tag = arena[at], arena[at + 1]
    n = tag >> 16
    for _ in range((tag & ROOM) - TREE):
        entry = node + ENTRIES + ENTRY * (arena[node] - 1)
        n = arena[entry + COUNT]
        node = arena[entry + CHILD]
    return arena[node + n - 1]


@inlined
def _locate(arena: NDArray[np.int64], slot: int, k: int) -> tuple[int, int]:
    """Return the address of the code at position `k` and how many codes its block has from there."""
    at = arena[SLOTS] + 2 * slot
    node, tag = arena[at], arena[at + 1]
    n = tag >> 16
    for _ in range((tag & ROOM) - TREE):
        entry = node + ENTRIES
        if 2 * k < n:
            while k >= arena[entry + COUNT]:
                k -= arena[entry + COUNT]
                entry += ENTRY
        else:  # from the back, which is where large percentiles and top-k look
            k -= n
            entry += ENTRY * arena[node]
            while k < 0:
                entry -= ENTRY
                k += arena[entry + COUNT]
        n = arena[entry + COUNT]
        node = arena[entry + CHILD]
    return node + k, n - k


@kernel
def kth(state: MultisetState, slot: int, k: int) -> int:
    """Return the code at position `k` of `slot`, counted from 0; ``0 <= k < size`` must hold."""
    arena = state[0]
    return arena[_locate(arena, slot, k)[0]]


@kernel
def copy_range(state: MultisetState, slot: int, k: int, n: int, out: NDArray[np.int64]) -> int:
    """Copy up to `n` codes from position `k` on, in order, to the front of `out`; return how many."""
    arena = state[0]
    n = max(min(n, size(state, slot) - k), 0)
    done = 0
    while done < n:
        at, run = _locate(arena, slot, k + done)
        run = min(run, n - done)
        for j in range(run):
            out[done + j] = arena[at + j]
        done += run
    return n


@kernel
def _clear_tree(arena: NDArray[np.int64], root: int, height: int) -> None:
    arena[PATH] = root
    arena[PATH + 1] = 0
    path = PATH
    while path >= PATH:
        node, i = arena[path], arena[path + 1]
        arena[path + 1] = i + 1
        if i == arena[node]:
            _release(arena, node, arena[node + 1])
            path -= 2
            continue
        child = arena[node + ENTRIES + ENTRY * i + CHILD]
        if path == PATH + 2 * height - 2:
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
    arena[at] = 0
    arena[at + 1] = 0
    if room >= TREE:
        _clear_tree(arena, base, room - TREE)
    elif room > 0:
        _release(arena, base, room)


@inlined
def _copy(source: NDArray[np.int64], block: int, target: NDArray[np.int64], words: int) -> int:
    """Copy a block to the top of another arena; return its address there."""
    top = target[TOP]
    for k in range(words):
        target[top + k] = source[block + k]
    target[TOP] = top + words
    return top


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
        target[PATH] = block
        target[PATH + 1] = 0
        path = PATH if room >= TREE else 0
        while path >= PATH:
            node, i = target[path], target[path + 1]
            target[path + 1] = i + 1
            if i == target[node]:
                path -= 2
                continue
            entry = node + ENTRIES + ENTRY * i
            child = target[entry + CHILD]
            is_leaf = path == PATH + 2 * (room - TREE) - 2
            target[entry + CHILD] = _copy(arena, child, target, LEAF if is_leaf else NODE)
            if not is_leaf:
                path += 2
                target[path] = target[entry + CHILD]
                target[path + 1] = 0


@kernel
def apply_changes(
    state: MultisetState, slots: NDArray[np.int32], signs: NDArray[np.int8], codes: NDArray[np.int64]
) -> int:
    """Insert where the sign is positive, else remove; return the first row not found, or -1."""
    state = borrowed(state)
    for row in range(slots.size):
        prefetch(state, slots, codes, row)
        if signs[row] > 0:
            insert(state, slots[row], codes[row])
        elif not remove(state, slots[row], codes[row]):
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
