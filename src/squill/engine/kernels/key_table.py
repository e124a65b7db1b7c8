"""Loops of the key table: probe, insert, release, and keys from and to one byte string per row.

The table is open-addressed with linear probing. An entry is one int64: the upper 32 bits of the key's hash,
then its slot; `EMPTY` is -1. A key's home is ``hash >> 32 & mask``, so the entry alone tells where it
belongs: growing and closing gaps read nothing but the table, and a probe reads a key's values only when
32 bits of hash agree. The low bits of the hash are left to placement, which chose the keys of this shard.

Finding and inserting are one kernel, because two would be compiled one after the other for the same keys.
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
    "GROW_TABLE", "LIVE", "LONGEST_KEY", "NEXT", "NO_KEY", "NULL", "STATE_SIZE", "byte_ranges", "fill_table",
    "gather_words", "look_up_bytes", "look_up_word", "look_up_words", "make_views", "pack_bytes", "put_column",
    "rebuild_table", "release_slots", "take_column",
]  # fmt: skip

Array = npt.NDArray[Any]
Reached = tuple[int, int]

EMPTY = np.int64(-1)
REJECTED = np.int64(-2)  # instead of a slot, where a guess was that of another key: the right one may lie behind it
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
def tagged_from(table: Array, at: np.uint64, h: np.uint64) -> np.uint64:
    """Return the first place from `at` on that is empty or whose entry has the tag of `h`."""
    mask = np.uint64(len(table) - 1)
    at &= mask
    while table[at] != EMPTY and not has_tag(table[at], h):
        at = (at + U1) & mask
    return at


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


# Loops that count from 0 to the length of their arrays need not ask whether an index is negative, and take half the
# time: so they are helpers, which are given parts of the rows.


@inlined
def guess_slots(table: Array, key_hashes: Array, out: Array) -> None:
    for i in range(len(out)):
        out[i] = tagged_slot(table, key_hashes[i])


@inlined
def reject_others(keys: Array, held: Array, out: Array) -> None:
    """Reject the guesses that hold another word, or other nulls, than the key; for some rows there is none."""
    for i in range(len(out)):
        slot = np.int64(out[i])
        is_wrong = held[np.uint64(max(slot, np.int64(0)))] != keys[i]
        out[i] = REJECTED if is_wrong and slot >= 0 else slot


@inlined
def is_settled(slot: np.int32, may_insert: bool) -> bool:
    """Say whether a row is done with: it has a slot, or there is no key of its tag and none may be entered."""
    return slot >= 0 or (slot == EMPTY and not may_insert)


@inlined
def are_settled(out: Array, may_insert: bool) -> bool:
    open_below = np.int64(0) if may_insert else EMPTY
    count = 0
    for i in range(len(out)):
        count += out[i] < open_below
    return count == 0


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


@kernel
def look_up_word(
    keys: Array, key_nulls: Array, key_hashes: Array, row: int, check_nulls: bool, may_insert: bool,
    table: Array, words: Array, nulls: Array, hashes: Array, free: Array, state: Array, out: Array,
) -> Reached:  # fmt: skip
    """Give each row's one-word key its slot, from `row` on; without `may_insert`, -1 to those that have none."""
    for block in range(row, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        slots = out[block:end]
        guess_slots(table, key_hashes[block:end], slots)
        reject_others(keys[block:end], words, slots)
        if check_nulls:
            reject_others(key_nulls[block:end], nulls, slots)
        if are_settled(slots, may_insert):
            continue
        for i in range(block, end):
            if is_settled(out[i], may_insert):
                continue
            h = key_hashes[i]
            at = tagged_from(table, h >> U32, h)
            slot = table[at]
            while slot != EMPTY:
                slot &= SLOT_BITS
                if words[slot] == keys[i] and (not check_nulls or nulls[slot] == key_nulls[i]):
                    break
                at = tagged_from(table, at + U1, h)
                slot = table[at]
            if slot == EMPTY and may_insert:
                slot = new_slot(table, at, h, hashes, free, state)
                if slot < 0:
                    return -slot, i
                words[slot] = keys[i]
                nulls[slot] = key_nulls[i]
            out[i] = slot
    return DONE, len(out)


@inlined
def same_words(keys: Array, row: np.int64, words: Array, slot: np.int64) -> bool:
    for j in range(keys.shape[1]):
        if keys[row, j] != words[slot, j]:
            return False
    return True


@kernel
def look_up_words(
    keys: Array, key_nulls: Array, key_hashes: Array, row: int, may_insert: bool,
    table: Array, words: Array, nulls: Array, hashes: Array, free: Array, state: Array, out: Array,
) -> Reached:  # fmt: skip
    """Give each row's key of several words its slot, from `row` on; see `look_up_word`."""
    for block in range(row, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        guess_slots(table, key_hashes[block:end], out[block:end])
        for i in range(block, end):
            guess = np.int64(out[i])
            if guess >= 0 and (nulls[guess] != key_nulls[i] or not same_words(keys, i, words, guess)):
                out[i] = REJECTED
        for i in range(block, end):
            if is_settled(out[i], may_insert):
                continue
            h = key_hashes[i]
            at = tagged_from(table, h >> U32, h)
            slot = table[at]
            while slot != EMPTY:
                slot &= SLOT_BITS
                if nulls[slot] == key_nulls[i] and same_words(keys, i, words, slot):
                    break
                at = tagged_from(table, at + U1, h)
                slot = table[at]
            if slot == EMPTY and may_insert:
                slot = new_slot(table, at, h, hashes, free, state)
                if slot < 0:
                    return -slot, i
                for j in range(keys.shape[1]):
                    words[slot, j] = keys[i, j]
                nulls[slot] = key_nulls[i]
            out[i] = slot
    return DONE, len(out)


# Byte strings come as where each begins in `data` and how long it is; null is a length of its own. Their kernels are
# compiled when the first such key comes, so they do without min() and max(), each another function to compile.


@kernel
def look_up_bytes(
    key_starts: Array, key_lengths: Array, data: Array, key_hashes: Array, row: int, may_insert: bool,
    table: Array, arena: Array, starts: Array, lengths: Array, hashes: Array, free: Array, state: Array, out: Array,
) -> Reached:  # fmt: skip
    """Give each row's byte string its slot, from `row` on; see `look_up_word`. New ones are copied to the arena."""
    for block in range(row, len(out), BLOCK):
        end = block + BLOCK if block + BLOCK < len(out) else len(out)  # noqa: FURB136
        guess_slots(table, key_hashes[block:end], out[block:end])
        for i in range(block, end):
            guess = np.int64(out[i])
            # Also fetches where the slot's bytes lie.
            if guess >= 0 and (lengths[guess] != key_lengths[i] or starts[guess] < 0):
                out[i] = REJECTED
        for i in range(block, end):
            guess = np.int64(out[i])
            if guess >= 0 and not same_bytes(data, key_starts[i], arena, starts[guess], key_lengths[i]):
                out[i] = REJECTED
        for i in range(block, end):
            if is_settled(out[i], may_insert):
                continue
            h = key_hashes[i]
            start = key_starts[i]
            length = key_lengths[i]
            at = tagged_from(table, h >> U32, h)
            slot = table[at]
            while slot != EMPTY:
                slot &= SLOT_BITS
                if lengths[slot] == length and same_bytes(data, start, arena, starts[slot], length):
                    break
                at = tagged_from(table, at + U1, h)
                slot = table[at]
            if slot == EMPTY and may_insert:
                used = state[ARENA_END]
                reached = used + (length if length > 0 else 0)  # noqa: FURB136
                if reached > len(arena):
                    return GROW_ARENA, i
                slot = new_slot(table, at, h, hashes, free, state)
                if slot < 0:
                    return -slot, i
                starts[slot] = used
                lengths[slot] = length
                copy_bytes(data, start, reached - used, arena, used)
                state[ARENA_END] = reached
            out[i] = slot
    return DONE, len(out)


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
    """Move every entry of `old`, which is used up, to the empty table `new`, which is no smaller.

    Half of the places are empty, and no processor guesses which: so entries are moved to the front of a block without
    a branch, then placed.
    """
    mask = np.uint64(len(new) - 1)
    for block in range(0, len(old), BLOCK):
        end = block + BLOCK if block + BLOCK < len(old) else len(old)  # noqa: FURB136
        found = 0
        for i in range(block, end):
            entry = old[i]
            old[block + found] = entry
            found += entry != EMPTY
        for i in range(block, block + found):
            entry = old[i]
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
def pack_bytes(data: Array, starts: Array, lengths: Array, target: Array) -> int:
    """Copy byte ranges to `target`, one after the other, and let `starts` say where they are now; return the end.

    Those of negative length are left out.
    """
    end = 0
    for i in range(len(starts)):
        length = lengths[i]
        if length >= 0:
            copy_bytes(data, starts[i], length, target, end)
            starts[i] = end
            end += length
    return end


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
def make_views(arena: Array, starts: Array, lengths: Array, shift: int, views: Array, out: Array) -> None:
    """Write Arrow string views (four 32-bit words each) of byte ranges of the arena; `out` is `views` as bytes.

    Up to 12 bytes lie inside the view. Longer ones point into the arena, cut in overlapping buffers that
    begin every ``2 ** shift`` bytes.
    """
    for i in range(len(starts)):
        start = starts[i]
        length = lengths[i]
        views[4 * i] = length
        copy_bytes(arena, start, length if length < 12 else 12, out, 16 * i + 4)  # noqa: FURB136
        if length > 12:
            # Only the first four bytes stay.
            buffer = start >> shift
            views[4 * i + 2] = buffer
            views[4 * i + 3] = start - (buffer << shift)


# Keys of several columns as one byte string: per column one byte, 0 for null, then, if not null, 8 bytes of
# a word, 16 bytes of limbs, or a length in 4 bytes and as many bytes. It can be read from the left only one
# way, so different keys have different strings.


@kernel
def put_column(
    starts: Array, lengths: Array, data: Array, valid: Array, width: int, target: Array, cursor: Array
) -> None:
    """Encode a column at each row's cursor and move the cursor.

    Row i is ``data[starts[i] : starts[i] + lengths[i]]``, or, with a `width`, the i-th piece of so many bytes.
    """
    for i in range(len(valid)):
        at = cursor[i]
        target[at] = valid[i]
        at += 1
        if valid[i]:
            start = i * width
            length = width
            if width == 0:
                start = starts[i]
                length = lengths[i]
                store_half(target, at, length)
                at += 4
            copy_bytes(data, start, length, target, at)
            at += length
        cursor[i] = at


@kernel
def take_column(arena: Array, cursor: Array, width: int, out: Array, starts: Array, lengths: Array) -> None:
    """Find a column at each row's cursor and move the cursor; lengths say `NULL`.

    The pieces of a column of `width` are copied to `out`.
    """
    for i in range(len(cursor)):
        at = cursor[i] + 1
        cursor[i] = at
        lengths[i] = NULL
        if arena[at - 1]:
            length = np.int64(width)
            if width > 0:
                copy_bytes(arena, at, width, out, i * width)
            else:
                length = np.int64(load_half(arena, at))
                at += 4
            lengths[i] = length
            cursor[i] = at + length
        starts[i] = at
