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

from squill.engine.kernels.hashing import load_word
from squill.engine.kernels.jit import inlined, kernel

__all__ = [
    "ARENA_END", "BAD_SLOT", "BUFFER_SHIFT", "DEAD_BYTES", "DONE", "EMPTY", "FREE", "GROW_ARENA",
    "GROW_SLOTS", "GROW_TABLE", "LIVE", "LONGEST_KEY", "NEXT", "STATE_SIZE", "TOO_LONG", "add_byte_lengths",
    "add_fixed_lengths", "byte_ranges", "compact_arena", "fill_table", "find_bytes", "find_word",
    "find_words", "gather_words", "insert_bytes", "insert_word", "insert_words", "make_views", "put_bytes",
    "put_limbs", "put_words", "rebuild_table", "release_slots", "take_bytes", "take_limbs", "take_words",
    "total_length",
]  # fmt: skip

Array = npt.NDArray[Any]
Reached = tuple[int, int]

EMPTY = np.int64(-1)
SLOT_BITS = np.int64(0xFFFFFFFF)
U1 = np.uint64(1)
U8 = np.uint64(8)
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
TOO_LONG = 5

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
def lack_of_room(table: Array, hashes: Array, state: Array) -> int:
    """Return the code of what must grow before one more key fits, or DONE."""
    if 2 * (state[LIVE] + 1) > len(table):
        return GROW_TABLE
    if state[FREE] == 0 and state[NEXT] >= len(hashes):
        return GROW_SLOTS
    return DONE


@inlined
def claim_slot(free: Array, state: Array) -> np.int64:
    state[LIVE] += 1
    if state[FREE] > 0:
        state[FREE] -= 1
        return np.int64(free[state[FREE]])
    slot = state[NEXT]
    state[NEXT] = slot + 1
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
                code = lack_of_room(table, hashes, state)
                if code != DONE:
                    return code, i
                slot = claim_slot(free, state)
                place_entry(table, at, h, slot)
                words[slot] = keys[i]
                nulls[slot] = key_nulls[i]
                hashes[slot] = h
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
                code = lack_of_room(table, hashes, state)
                if code != DONE:
                    return code, i
                slot = claim_slot(free, state)
                place_entry(table, at, h, slot)
                for j in range(keys.shape[1]):
                    words[slot, j] = keys[i, j]
                nulls[slot] = key_nulls[i]
                hashes[slot] = h
            out[i] = slot
    return DONE, len(out)


@kernel
def find_words(
    keys: Array, key_nulls: Array, key_hashes: Array, table: Array, words: Array, nulls: Array, out: Array
) -> None:
    """Look up each row's key of several words; -1 when absent."""
    for i in range(len(out)):
        out[i] = seek_words(table, words, nulls, key_hashes[i], keys, i, key_nulls[i])[0]


@inlined
def same_bytes(a: Array, a_start: np.int64, b: Array, b_start: np.int64, length: np.int64) -> bool:
    x = np.uint64(a_start)
    y = np.uint64(b_start)
    stop = x + np.uint64(length)
    while x + U8 <= stop:
        if load_word(a, x) != load_word(b, y):
            return False
        x += U8
        y += U8
    while x < stop:
        if a[x] != b[y]:
            return False
        x += U1
        y += U1
    return True


@inlined
def store_word(target: Array, at: np.uint64, word: np.uint64) -> None:
    # LLVM makes one 8-byte store of the eight.
    target[at] = np.uint8(word)
    target[at + np.uint64(1)] = np.uint8(word >> np.uint64(8))
    target[at + np.uint64(2)] = np.uint8(word >> np.uint64(16))
    target[at + np.uint64(3)] = np.uint8(word >> np.uint64(24))
    target[at + np.uint64(4)] = np.uint8(word >> np.uint64(32))
    target[at + np.uint64(5)] = np.uint8(word >> np.uint64(40))
    target[at + np.uint64(6)] = np.uint8(word >> np.uint64(48))
    target[at + np.uint64(7)] = np.uint8(word >> np.uint64(56))


@inlined
def copy_bytes(source: Array, start: np.int64, length: np.int64, target: Array, at: np.int64) -> None:
    x = np.uint64(start)
    y = np.uint64(at)
    stop = x + np.uint64(length)
    while x + U8 <= stop:
        store_word(target, y, load_word(source, x))
        x += U8
        y += U8
    while x < stop:
        target[y] = source[x]
        x += U1
        y += U1


@inlined
def seek_bytes(
    table: Array, arena: Array, starts: Array, lengths: Array, nulls: Array,
    h: np.uint64, data: Array, start: np.int64, length: np.int64, null: int,
) -> tuple[np.int64, np.uint64]:  # fmt: skip
    mask = np.uint64(len(table) - 1)
    at = (h >> U32) & mask
    while True:
        entry = table[at]
        if entry == EMPTY:
            return EMPTY, at
        if has_tag(entry, h):
            slot = entry & SLOT_BITS
            # A null has no bytes, so only an empty string can be mistaken for it.
            if (
                lengths[slot] == length
                and (length > 0 or nulls[slot] == null)
                and same_bytes(data, start, arena, starts[slot], length)
            ):
                return slot, at
        at = (at + U1) & mask


@inlined
def guess_bytes(
    offsets: Array, data: Array, key_valid: Array, key_hashes: Array, row: int, end: int,
    table: Array, arena: Array, starts: Array, lengths: Array, nulls: Array, places: Array, out: Array,
) -> None:  # fmt: skip
    """Fill `out` with the slots of the rows whose key is the first with its tag, -1 for the others."""
    for i in range(row, end):
        out[i] = tagged_slot(table, key_hashes[i])
    for i in range(row, end):
        slot = max(np.int64(out[i]), np.int64(0))
        places[i - row] = starts[slot]
        length = offsets[i + 1] - offsets[i] if key_valid[i] else np.int64(0)
        if lengths[slot] != length or (length == 0 and nulls[slot] == key_valid[i]):
            out[i] = EMPTY
    for i in range(row, end):
        if out[i] >= 0 and key_valid[i]:
            length = offsets[i + 1] - offsets[i]
            if not same_bytes(data, offsets[i], arena, places[i - row], length):
                out[i] = EMPTY


@kernel
def insert_bytes(
    offsets: Array, data: Array, key_valid: Array, key_hashes: Array, row: int,
    table: Array, arena: Array, starts: Array, lengths: Array, nulls: Array, hashes: Array, free: Array,
    state: Array, out: Array,
) -> Reached:  # fmt: skip
    """Give each row's byte string its slot, from `row` on; new ones are copied to the arena."""
    places = np.empty(BLOCK, dtype=np.int64)
    for block in range(row, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        guess_bytes(
            offsets, data, key_valid, key_hashes, block, end,
            table, arena, starts, lengths, nulls, places, out,
        )  # fmt: skip
        for i in range(block, end):
            if out[i] >= 0:
                continue
            h = key_hashes[i]
            null = np.uint8(1) - key_valid[i]
            start = offsets[i]
            length = np.int64(0) if null else offsets[i + 1] - start
            slot, at = seek_bytes(table, arena, starts, lengths, nulls, h, data, start, length, null)
            if slot < 0:
                code = lack_of_room(table, hashes, state)
                if length > LONGEST_KEY:
                    code = TOO_LONG
                elif code == DONE and state[ARENA_END] + length > len(arena):
                    code = GROW_ARENA
                if code != DONE:
                    return code, i
                slot = claim_slot(free, state)
                place_entry(table, at, h, slot)
                copy_bytes(data, start, length, arena, state[ARENA_END])
                starts[slot] = state[ARENA_END]
                lengths[slot] = length
                state[ARENA_END] += length
                nulls[slot] = null
                hashes[slot] = h
            out[i] = slot
    return DONE, len(out)


@kernel
def find_bytes(
    offsets: Array, data: Array, key_valid: Array, key_hashes: Array,
    table: Array, arena: Array, starts: Array, lengths: Array, nulls: Array, out: Array,
) -> None:  # fmt: skip
    """Look up each row's byte string; -1 when absent."""
    places = np.empty(BLOCK, dtype=np.int64)
    for block in range(0, len(out), BLOCK):
        end = min(block + BLOCK, len(out))
        guess_bytes(
            offsets, data, key_valid, key_hashes, block, end,
            table, arena, starts, lengths, nulls, places, out,
        )  # fmt: skip
        for i in range(block, end):
            if out[i] < 0:
                h = key_hashes[i]
                null = np.uint8(1) - key_valid[i]
                start = offsets[i]
                length = np.int64(0) if null else offsets[i + 1] - start
                out[i] = seek_bytes(table, arena, starts, lengths, nulls, h, data, start, length, null)[0]


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
            state[DEAD_BYTES] += lengths[slot]
            lengths[slot] = -1
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
def byte_ranges(
    slots: Array, starts: Array, lengths: Array, nulls: Array, end: int,
    out_starts: Array, out_lengths: Array, valid: Array,
) -> int:  # fmt: skip
    """Read where the bytes of the keys at `slots` lie; return the row of a slot without a key, or -1."""
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0 or slot >= end or lengths[slot] < 0:
            return i
        out_starts[i] = starts[slot]
        out_lengths[i] = lengths[slot]
        valid[i] = 1 - nulls[slot]
    return -1


@kernel
def total_length(lengths: Array) -> int:
    """Return the bytes that views of these lengths keep outside themselves (12 and fewer lie inside)."""
    total = np.int64(0)
    for i in range(len(lengths)):
        if lengths[i] > 12:
            total += lengths[i]
    return total


@inlined
def partial_word(data: Array, at: np.int64, length: np.int64) -> np.uint64:
    """Return up to 8 bytes as a little-endian word, zeros above."""
    word = np.uint64(0)
    for k in range(min(length, 8)):
        word |= np.uint64(data[np.uint64(at + k)]) << np.uint64(8 * k)
    return word


@kernel
def make_views(arena: Array, starts: Array, lengths: Array, shift: int, copies: Array, out: Array) -> None:
    """Write Arrow string views (two words each) of byte ranges of the arena.

    Up to 12 bytes lie inside the view. Longer ones point into the arena, cut in overlapping buffers that
    begin every ``2 ** shift`` bytes, or, when `copies` is not empty and has room for all, into `copies`.
    """
    do_copy = len(copies) > 0
    end = np.int64(0)
    for i in range(len(starts)):
        start = starts[i]
        length = np.int64(lengths[i])
        if length <= 12:
            # Word 0: length, bytes 0-3. Word 1: bytes 4-11.
            out[2 * i] = np.uint64(length) | partial_word(arena, start, min(length, 4)) << U32
            out[2 * i + 1] = partial_word(arena, start + 4, length - 4)
        else:
            prefix = partial_word(arena, start, 4)
            out[2 * i] = np.uint64(length) | prefix << U32
            if do_copy:
                copy_bytes(arena, start, length, copies, end)
                out[2 * i + 1] = np.uint64(end) << U32
                end += length
            else:
                buffer = start >> shift
                out[2 * i + 1] = np.uint64(buffer) | np.uint64(start - (buffer << shift)) << U32


# Keys of several columns as one byte string: per column one byte, 0 for null, then, if not null, 8 bytes of
# a word, 16 bytes of limbs, or a length in 4 bytes and as many bytes. It can be read from the left only one
# way, so different keys have different strings.


@kernel
def add_fixed_lengths(valid: Array, width: int, ends: Array) -> None:
    """Add the encoded length of a column of `width` bytes to each row's."""
    for i in range(len(valid)):
        ends[i] += 1 + width * np.int64(valid[i])


@kernel
def add_byte_lengths(offsets: Array, valid: Array, ends: Array) -> None:
    """Add the encoded length of a byte-string column to each row's."""
    for i in range(len(valid)):
        ends[i] += 1
        if valid[i]:
            ends[i] += 4 + offsets[i + 1] - offsets[i]


@kernel
def put_words(values: Array, valid: Array, target: Array, cursor: Array) -> None:
    """Encode a word column at each row's cursor and move the cursor."""
    for i in range(len(valid)):
        at = cursor[i]
        target[at] = valid[i]
        if valid[i]:
            store_word(target, np.uint64(at + 1), np.uint64(values[i]))
            at += 8
        cursor[i] = at + 1


@kernel
def put_limbs(high: Array, low: Array, valid: Array, target: Array, cursor: Array) -> None:
    """Encode a limbs column at each row's cursor and move the cursor."""
    for i in range(len(valid)):
        at = cursor[i]
        target[at] = valid[i]
        if valid[i]:
            store_word(target, np.uint64(at + 1), np.uint64(low[i]))
            store_word(target, np.uint64(at + 9), np.uint64(high[i]))
            at += 16
        cursor[i] = at + 1


@kernel
def put_bytes(offsets: Array, data: Array, valid: Array, target: Array, cursor: Array) -> None:
    """Encode a byte-string column at each row's cursor and move the cursor."""
    for i in range(len(valid)):
        at = cursor[i]
        target[at] = valid[i]
        if valid[i]:
            length = offsets[i + 1] - offsets[i]
            for k in range(4):
                target[np.uint64(at + 1 + k)] = np.uint8(length >> (8 * k))
            copy_bytes(data, offsets[i], length, target, at + 5)
            at += 4 + length
        cursor[i] = at + 1


@kernel
def take_words(arena: Array, cursor: Array, out: Array, valid: Array) -> None:
    """Decode a word column at each row's cursor and move the cursor."""
    for i in range(len(cursor)):
        at = cursor[i]
        valid[i] = arena[at]
        out[i] = 0
        if valid[i]:
            out[i] = np.int64(load_word(arena, np.uint64(at + 1)))
            at += 8
        cursor[i] = at + 1


@kernel
def take_limbs(arena: Array, cursor: Array, high: Array, low: Array, valid: Array) -> None:
    """Decode a limbs column at each row's cursor and move the cursor."""
    for i in range(len(cursor)):
        at = cursor[i]
        valid[i] = arena[at]
        low[i] = 0
        high[i] = 0
        if valid[i]:
            low[i] = np.int64(load_word(arena, np.uint64(at + 1)))
            high[i] = np.int64(load_word(arena, np.uint64(at + 9)))
            at += 16
        cursor[i] = at + 1


@kernel
def take_bytes(arena: Array, cursor: Array, starts: Array, lengths: Array, valid: Array) -> None:
    """Find a byte-string column at each row's cursor and move the cursor."""
    for i in range(len(cursor)):
        at = cursor[i]
        valid[i] = arena[at]
        starts[i] = at + 1
        lengths[i] = 0
        if valid[i]:
            length = np.int64(partial_word(arena, at + 1, 4))
            starts[i] = at + 5
            lengths[i] = length
            at += 4 + length
        cursor[i] = at + 1
