"""Loops of the key table: probe, insert, release, and keys from and to one byte string per row.

The table is open-addressed with linear probing. An entry is one int64: the upper 32 bits of the key's hash,
then its slot; `EMPTY` is -1. A key's home is ``hash >> 32 & mask``, so the entry alone tells where it
belongs: growing and closing gaps read nothing but the table, and a probe reads a key's values only when
32 bits of hash agree. The low bits of the hash are left to placement, which chose the keys of this shard.

Rows are looked up in blocks: one loop finds the entry with the right tag for every row, the next compares
the keys (for byte strings: one reads where they lie, one compares), and the last does the rows left, in
order, and inserts. So the processor waits for many cache lines at once instead of one row's, one after the
other, and the loops that most rows take stay small.

Kernels that insert work on ``state``, an int64 array (see `LIVE` and below), and stop with a code and a row
when an array is full; the caller grows it and calls again from that row. Slots from outside are checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import copy_bytes, load_half, same_bytes, store_half

__all__ = [
    "ARENA_END", "BAD_SLOT", "BUFFER_SHIFT", "DEAD_BYTES", "DONE", "EMPTY", "FREE", "GROW_ARENA", "GROW_SLOTS",
    "GROW_TABLE", "LIVE", "LONGEST_KEY", "NEXT", "NO_KEY", "NULL", "STATE_SIZE", "byte_ranges", "compact_arena",
    "fill_table", "find_bytes", "find_word", "find_words", "gather_words", "insert_bytes", "insert_word",
    "insert_words", "make_views", "put_column", "rebuild_table", "release_slots", "take_column",
]  # fmt: skip

Array = npt.NDArray[Any]
Reached = tuple[int, int]

EMPTY = np.int64(-1)
SLOT_BITS = np.int64(0xFFFFFFFF)
U1 = np.uint64(1)
U32 = np.uint64(32)
HIGH_HALF = np.int64(-1) << np.int64(32)

BLOCK = 256  # rows whose cache lines stay in the first level between two loops

# Places in the state array.
LIVE = 0  # keys in the table
NEXT = 1  # the slot after the highest ever handed out
FREE = 2  # released slots on the free stack
ARENA_END = 3  # bytes of the arena in use
DEAD_BYTES = 4  # of which belong to released keys
STATE_SIZE = 5

# Codes.
DONE = 0
GROW_TABLE = 1
GROW_SLOTS = 2
GROW_ARENA = 3
BAD_SLOT = 4

# Lengths that say something else.
NO_KEY = -1  # the slot is free
NULL = -2

# A view's offset is an int32 and the buffers of an arena begin every 2^30 bytes: no view shows a longer key.
BUFFER_SHIFT = 30
LONGEST_KEY = 1 << BUFFER_SHIFT


@inlined
def has_tag(entry: np.int64, h: np.uint64) -> bool:
    return ((entry ^ np.int64(h)) & HIGH_HALF) == 0


@inlined
def tagged_slot(table: Array, h: np.uint64) -> np.int64:
    """Return the first slot with the tag of `h`, or -1: a guess, to be verified."""
    mask = np.uint64(len(table) - 1)
    at = (h >> U32) & mask
    while True:
        entry = table[at]
        if entry == EMPTY:
            return EMPTY
        if has_tag(entry, h):
            return entry & SLOT_BITS
        at = (at + U1) & mask


@inlined
def place_entry(table: Array, at: np.uint64, h: np.uint64, slot: np.int64) -> None:
    table[at] = (np.int64(h) & HIGH_HALF) | slot


@inlined
def new_slot(table: Array, at: np.uint64, h: np.uint64, hashes: Array, free: Array, state: Array) -> np.int64:
    """Enter a key into the table at its place and return its slot, or the negative code of what must grow first."""
    if 2 * (state[LIVE] + 1) > len(table):
        return np.int64(-GROW_TABLE)
    if state[FREE] > 0:
        state[FREE] -= 1
        slot = np.int64(free[state[FREE]])
    else:
        slot = state[NEXT]
        if slot >= len(hashes):
            return np.int64(-GROW_SLOTS)
        state[NEXT] = slot + 1
    state[LIVE] += 1
    place_entry(table, at, h, slot)
    hashes[slot] = h
    return slot


@inlined
def seek_word(
    table: Array, words: Array, nulls: Array, h: np.uint64, word: np.int64, null: int, check_nulls: bool
) -> tuple[np.int64, np.uint64]:
    """Return (slot or -1, place in the table) of a one-word key."""
    mask = np.uint64(len(table) - 1)
    at = (h >> U32) & mask
    while True:
        entry = table[at]
        if entry == EMPTY:
            return EMPTY, at
        if has_tag(entry, h):
            slot = entry & SLOT_BITS
            if words[slot] == word and (not check_nulls or nulls[slot] == null):
                return slot, at
        at = (at + U1) & mask


@inlined
def guess_word(
    keys: Array, key_nulls: Array, key_hashes: Array, row: int, end: int, check_nulls: bool,
    table: Array, words: Array, nulls: Array, out: Array,
) -> None:  # fmt: skip
    """Fill `out` with the slots of the rows whose key is the first with its tag, -1 for the others."""
    for i in range(row, end):
        out[i] = tagged_slot(table, key_hashes[i])
    for i in range(row, end):
        slot = np.uint64(max(np.int64(out[i]), np.int64(0)))
        if words[slot] != keys[i] or (check_nulls and nulls[slot] != key_nulls[i]):
            out[i] = EMPTY


@kernel
def insert_word(
    keys: Array, key_nulls: Array, key_hashes: Array, row: int, check_nulls: bool,
    table: Array, words: Array, nulls: Array, hashes: Array, free: Array, state: Array, out: Array,
) -> Reached:  # fmt: skip
    """Give each row's one-word key its slot, from `row` on."""
    for block in range(row, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        guess_word(keys, key_nulls, key_hashes, block, end, check_nulls, table, words, nulls, out)
        for i in range(block, end):
            if out[i] >= 0:
                continue
            h = key_hashes[i]
            slot, at = seek_word(table, words, nulls, h, keys[i], key_nulls[i], check_nulls)
            if slot < 0:
                slot = new_slot(table, at, h, hashes, free, state)
                if slot < 0:
                    return -slot, i
                words[slot] = keys[i]
                nulls[slot] = key_nulls[i]
            out[i] = slot
    return DONE, len(out)


@kernel
def find_word(
    keys: Array, key_nulls: Array, key_hashes: Array, check_nulls: bool,
    table: Array, words: Array, nulls: Array, out: Array,
) -> None:  # fmt: skip
    """Look up each row's one-word key; -1 when absent."""
    for block in range(0, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        guess_word(keys, key_nulls, key_hashes, block, end, check_nulls, table, words, nulls, out)
        for i in range(block, end):
            if out[i] < 0:
                h = key_hashes[i]
                out[i] = seek_word(table, words, nulls, h, keys[i], key_nulls[i], check_nulls)[0]


@inlined
def same_words(keys: Array, row: np.int64, words: Array, slot: np.int64) -> bool:
    for j in range(keys.shape[1]):
        if keys[row, j] != words[slot, j]:
            return False
    return True


@inlined
def seek_words(
    table: Array, words: Array, nulls: Array, h: np.uint64, keys: Array, row: np.int64, null: int
) -> tuple[np.int64, np.uint64]:
    mask = np.uint64(len(table) - 1)
    at = (h >> U32) & mask
    while True:
        entry = table[at]
        if entry == EMPTY:
            return EMPTY, at
        if has_tag(entry, h):
            slot = entry & SLOT_BITS
            if nulls[slot] == null and same_words(keys, row, words, slot):
                return slot, at
        at = (at + U1) & mask


@kernel
def insert_words(
    keys: Array, key_nulls: Array, key_hashes: Array, row: int,
    table: Array, words: Array, nulls: Array, hashes: Array, free: Array, state: Array, out: Array,
) -> Reached:  # fmt: skip
    """Give each row's key of several words its slot, from `row` on."""
    for block in range(row, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        for i in range(block, end):
            out[i] = seek_words(table, words, nulls, key_hashes[i], keys, i, key_nulls[i])[0]
        for i in range(block, end):
            if out[i] >= 0:
                continue
            h = key_hashes[i]
            slot, at = seek_words(table, words, nulls, h, keys, i, key_nulls[i])
            if slot < 0:
                slot = new_slot(table, at, h, hashes, free, state)
                if slot < 0:
                    return -slot, i
                for j in range(keys.shape[1]):
                    words[slot, j] = keys[i, j]
                nulls[slot] = key_nulls[i]
            out[i] = slot
    return DONE, len(out)


@kernel
def find_words(
    keys: Array, key_nulls: Array, key_hashes: Array, table: Array, words: Array, nulls: Array, out: Array
) -> None:
    """Look up each row's key of several words; -1 when absent."""
    for i in range(len(out)):
        out[i] = seek_words(table, words, nulls, key_hashes[i], keys, i, key_nulls[i])[0]


# Byte strings come as where each begins in `data` and how long it is; null is a length of its own.


@inlined
def is_key(
    data: Array, start: np.int64, length: np.int64, arena: Array, starts: Array, lengths: Array, slot: np.int64
) -> bool:
    return lengths[slot] == length and (length <= 0 or same_bytes(data, start, arena, starts[slot], length))


@inlined
def seek_bytes(
    table: Array, arena: Array, starts: Array, lengths: Array,
    h: np.uint64, data: Array, start: np.int64, length: np.int64,
) -> tuple[np.int64, np.uint64]:  # fmt: skip
    mask = np.uint64(len(table) - 1)
    at = (h >> U32) & mask
    while True:
        entry = table[at]
        if entry == EMPTY:
            return EMPTY, at
        if has_tag(entry, h):
            slot = entry & SLOT_BITS
            if is_key(data, start, length, arena, starts, lengths, slot):
                return slot, at
        at = (at + U1) & mask


@inlined
def guess_bytes(
    key_starts: Array, key_lengths: Array, data: Array, key_hashes: Array, row: int, end: int,
    table: Array, arena: Array, starts: Array, lengths: Array, out: Array,
) -> None:  # fmt: skip
    """Fill `out` with the slots of the rows whose key is the first with its tag, -1 for the others."""
    for i in range(row, end):
        out[i] = tagged_slot(table, key_hashes[i])
    for i in range(row, end):
        # Also fetches where the slot's bytes lie.
        slot = max(np.int64(out[i]), np.int64(0))
        if lengths[slot] != key_lengths[i] or starts[slot] < 0:
            out[i] = EMPTY
    for i in range(row, end):
        slot = np.int64(out[i])
        if slot >= 0 and not is_key(data, key_starts[i], key_lengths[i], arena, starts, lengths, slot):
            out[i] = EMPTY


@kernel
def insert_bytes(
    key_starts: Array, key_lengths: Array, data: Array, key_hashes: Array, row: int,
    table: Array, arena: Array, starts: Array, lengths: Array, hashes: Array, free: Array, state: Array, out: Array,
) -> Reached:  # fmt: skip
    """Give each row's byte string its slot, from `row` on; new ones are copied to the arena."""
    for block in range(row, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        guess_bytes(
            key_starts, key_lengths, data, key_hashes, block, end, table, arena, starts, lengths, out
        )  # fmt: skip
        for i in range(block, end):
            if out[i] >= 0:
                continue
            h = key_hashes[i]
            start = key_starts[i]
            length = key_lengths[i]
            slot, at = seek_bytes(table, arena, starts, lengths, h, data, start, length)
            if slot < 0:
                used = state[ARENA_END]
                if used + length > len(arena):
                    return GROW_ARENA, i
                slot = new_slot(table, at, h, hashes, free, state)
                if slot < 0:
                    return -slot, i
                starts[slot] = used
                lengths[slot] = length
                if length > 0:
                    copy_bytes(data, start, length, arena, used)
                    state[ARENA_END] = used + length
            out[i] = slot
    return DONE, len(out)


@kernel
def find_bytes(
    key_starts: Array, key_lengths: Array, data: Array, key_hashes: Array,
    table: Array, arena: Array, starts: Array, lengths: Array, out: Array,
) -> None:  # fmt: skip
    """Look up each row's byte string; -1 when absent."""
    for block in range(0, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        guess_bytes(
            key_starts, key_lengths, data, key_hashes, block, end, table, arena, starts, lengths, out
        )  # fmt: skip
        for i in range(block, end):
            if out[i] < 0:
                h = key_hashes[i]
                out[i] = seek_bytes(table, arena, starts, lengths, h, data, key_starts[i], key_lengths[i])[0]


@inlined
def place_of(table: Array, h: np.uint64, slot: np.int64) -> np.int64:
    """Return where the table holds `slot`, or -1."""
    mask = np.uint64(len(table) - 1)
    at = (h >> U32) & mask
    while True:
        entry = table[at]
        if entry == EMPTY:
            return EMPTY
        if (entry & SLOT_BITS) == slot:
            return np.int64(at)
        at = (at + U1) & mask


@inlined
def close_gap(table: Array, at: np.int64) -> None:
    """Empty a place and move later entries of its run back, so that no probe meets a false end.

    An entry may move back to the gap unless that is before its home.
    """
    mask = np.uint64(len(table) - 1)
    gap = np.uint64(at)
    look = gap
    while True:
        look = (look + U1) & mask
        entry = table[look]
        if entry == EMPTY:
            break
        home = np.uint64(entry) >> U32
        if ((look - home) & mask) >= ((look - gap) & mask):
            table[gap] = entry
            gap = look
    table[gap] = EMPTY


@kernel
def release_slots(slots: Array, table: Array, hashes: Array, lengths: Array, free: Array, state: Array) -> Reached:
    """Take the keys of `slots` out of the table and push the slots on the free stack.

    `lengths` is empty for tables without an arena. Stops at a slot that holds no key.
    """
    for i in range(len(slots)):
        slot = np.int64(slots[i])
        if slot < 0 or slot >= state[NEXT]:
            return BAD_SLOT, i
        at = place_of(table, hashes[slot], slot)
        if at < 0:
            return BAD_SLOT, i
        close_gap(table, at)
        if len(lengths) > 0:
            state[DEAD_BYTES] += max(lengths[slot], 0)
            lengths[slot] = NO_KEY
        free[state[FREE]] = slot
        state[FREE] += 1
        state[LIVE] -= 1
    return DONE, len(slots)


@kernel
def rebuild_table(old: Array, new: Array) -> None:
    """Move every entry of `old` to the empty table `new`, which is no smaller."""
    mask = np.uint64(len(new) - 1)
    for i in range(len(old)):
        entry = old[i]
        if entry != EMPTY:
            at = (np.uint64(entry) >> U32) & mask
            while new[at] != EMPTY:
                at = (at + U1) & mask
            new[at] = entry


@kernel
def fill_table(hashes: Array, is_free: Array, table: Array) -> None:
    """Enter every slot that is not free into an empty table."""
    mask = np.uint64(len(table) - 1)
    for slot in range(len(hashes)):
        if is_free[slot] == 0:
            at = (hashes[slot] >> U32) & mask
            while table[at] != EMPTY:
                at = (at + U1) & mask
            place_entry(table, at, hashes[slot], np.int64(slot))


@kernel
def compact_arena(arena: Array, starts: Array, lengths: Array, state: Array, target: Array) -> None:
    """Copy the bytes of living slots to `target`, in slot order."""
    end = np.int64(0)
    for slot in range(state[NEXT]):
        length = np.int64(lengths[slot])
        if length >= 0:
            copy_bytes(arena, starts[slot], length, target, end)
            starts[slot] = end
            end += length
    state[ARENA_END] = end
    state[DEAD_BYTES] = 0


@kernel
def gather_words(slots: Array, words: Array, nulls: Array, column: int, end: int, out: Array, valid: Array) -> int:
    """Read one word column of the keys at `slots`; return the row of a slot out of range, or -1.

    `words` is a matrix; bit `column` of `nulls` says null. `valid` may be empty: nulls are not read then.
    """
    with_nulls = len(valid) > 0
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0 or slot >= end:
            return i
        out[i] = words[slot, column]
        if with_nulls:
            valid[i] = 1 - ((nulls[slot] >> column) & 1)
    return -1


@kernel
def byte_ranges(slots: Array, starts: Array, lengths: Array, end: int, out_starts: Array, out_lengths: Array) -> int:
    """Read where the bytes of the keys at `slots` lie; return the row of a slot without a key, or -1."""
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0 or slot >= end or lengths[slot] == NO_KEY:
            return i
        out_starts[i] = starts[slot]
        out_lengths[i] = lengths[slot]
    return -1


@kernel
def make_views(
    arena: Array, starts: Array, lengths: Array, shift: int, copies: Array, views: Array, out: Array
) -> None:
    """Write Arrow string views (four 32-bit words each) of byte ranges of the arena; `out` is `views` as bytes.

    Up to 12 bytes lie inside the view. Longer ones point into the arena, cut in overlapping buffers that
    begin every ``2 ** shift`` bytes, or, when `copies` is not empty and has room for all, into `copies`.
    """
    do_copy = len(copies) > 0
    end = np.int64(0)
    for i in range(len(starts)):
        start = starts[i]
        length = np.int64(lengths[i])
        views[4 * i] = length
        if length <= 12:
            copy_bytes(arena, start, length, out, 16 * i + 4)
            continue
        copy_bytes(arena, start, 4, out, 16 * i + 4)
        if do_copy:
            copy_bytes(arena, start, length, copies, end)
            views[4 * i + 3] = end
            end += length
        else:
            buffer = start >> shift
            views[4 * i + 2] = buffer
            views[4 * i + 3] = start - (buffer << shift)


# Keys of several columns as one byte string: per column one byte, 0 for null, then, if not null, 8 bytes of
# a word, 16 bytes of limbs, or a length in 4 bytes and as many bytes. It can be read from the left only one
# way, so different keys have different strings.


@kernel
def put_column(starts: Array, data: Array, valid: Array, width: int, target: Array, cursor: Array) -> None:
    """Encode a column at each row's cursor and move the cursor.

    Row i is ``data[starts[i]:starts[i + 1]]``, or, with a `width`, the i-th piece of so many bytes.
    """
    for i in range(len(valid)):
        at = cursor[i]
        target[at] = valid[i]
        at += 1
        if valid[i]:
            if width > 0:
                copy_bytes(data, i * width, width, target, at)
                at += width
            else:
                start = starts[i]
                length = starts[i + 1] - start
                store_half(target, at, length)
                copy_bytes(data, start, length, target, at + 4)
                at += 4 + length
        cursor[i] = at


@kernel
def take_column(arena: Array, cursor: Array, width: int, out: Array, starts: Array, lengths: Array) -> None:
    """Find a column at each row's cursor and move the cursor; lengths say `NULL`.

    The pieces of a column of `width` are copied to `out`.
    """
    for i in range(len(cursor)):
        at = cursor[i] + 1
        length = np.int64(NULL)
        if arena[at - 1]:
            if width > 0:
                length = np.int64(width)
                copy_bytes(arena, at, width, out, i * width)
            else:
                length = np.int64(load_half(arena, at))
                at += 4
        starts[i] = at
        lengths[i] = length
        cursor[i] = at + max(length, 0)
