"""Rows as byte strings in the order of their columns, and sorting rows that share an instant.

Each column appends its bytes to each row at that row's *cursor*, which it moves on. `flip` is 0, or 255
for a descending column: every byte of the column is written inverted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from squill.engine.kernels.jit import allocating, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]

__all__ = [
    "INCREASING",
    "TIED",
    "UNORDERED",
    "classify",
    "find_ties",
    "list_lengths",
    "sort_ties",
    "text_lengths",
    "write_flags",
    "write_lists",
    "write_markers",
    "write_rows",
    "write_text",
    "write_words",
]

INCREASING, TIED, UNORDERED = 0, 1, 2
SHORT = 16


@kernel
def write_markers(valid: Bytes, flip: int, cursors: Ints, data: Bytes) -> None:
    """Append 1 to each row with a value and 0 to each null."""
    mask = np.uint8(flip)
    for row in range(cursors.size):
        at = np.uint64(cursors[row])
        data[at] = valid[row] ^ mask
        cursors[row] += 1


@kernel
def write_flags(flags: Bytes, valid: Bytes, flip: int, cursors: Ints, data: Bytes) -> None:
    """Append one byte per row: 0 for null, 1 for false, 2 for true."""
    mask = np.uint8(flip)
    for row in range(cursors.size):
        at = np.uint64(cursors[row])
        data[at] = valid[row] * (flags[row] + np.uint8(1)) ^ mask
        cursors[row] += 1


@kernel
def write_words(codes: Ints, valid: Bytes, flip: int, cursors: Ints, data: Bytes) -> None:
    """Append 8 bytes per row, the code with the largest byte first; zeros where there is no value."""
    mask = ~np.uint64(0) if flip else np.uint64(0)
    one = np.uint64(1)
    for row in range(cursors.size):
        word = np.uint64(codes[row]) ^ np.uint64(0x8000000000000000)
        if valid[row] == 0:
            word = np.uint64(0)
        word ^= mask
        at = np.uint64(cursors[row])
        for k in range(8):
            data[at] = np.uint8(word >> np.uint64(56 - 8 * k))
            at += one
        cursors[row] += 8


@kernel
def text_lengths(offsets: Ints, text: Bytes, valid: Bytes, has_zeros: bool, lengths: Ints) -> None:
    """Add what each row of text takes: its bytes, one more for each zero byte, and the two at the end."""
    for row in range(lengths.size):
        if valid[row] == 0:
            continue
        lengths[row] += offsets[row + 1] - offsets[row] + 2
        if has_zeros:
            for k in range(offsets[row], offsets[row + 1]):
                lengths[row] += 1 if text[k] == 0 else 0


@kernel
def write_text(
    offsets: Ints, text: Bytes, valid: Bytes, has_zeros: bool, flip: int, cursors: Ints, data: Bytes
) -> None:
    """Append each row's bytes with 0 as 0 255, then 0 0; nothing for a null."""
    mask = np.uint8(flip)
    one = np.uint64(1)
    for row in range(cursors.size):
        if valid[row] == 0:
            continue
        at = np.uint64(cursors[row])
        source, end = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        while source < end:
            byte = text[source]
            data[at] = byte ^ mask
            at += one
            source += one
            if has_zeros and byte == 0:
                data[at] = np.uint8(255) ^ mask
                at += one
        data[at] = mask
        data[at + one] = mask
        cursors[row] = np.int64(at) + 2


@kernel
def write_rows(offsets: Ints, rows: Bytes, valid: Bytes, flip: int, cursors: Ints, data: Bytes) -> None:
    """Append rows that are encoded already; nothing for a null."""
    mask = np.uint8(flip)
    for row in range(cursors.size):
        if valid[row] == 0:
            continue
        at = cursors[row] - offsets[row]
        for k in range(offsets[row], offsets[row + 1]):
            data[at + k] = rows[k] ^ mask
        cursors[row] = at + offsets[row + 1]


@kernel
def list_lengths(counts: Ints, offsets: Ints, lengths: Ints) -> None:
    """Add what each list takes: its encoded elements, one byte before each, and one at the end.

    A null list has the count -1 and takes nothing.
    """
    element = 0
    for row in range(lengths.size):
        if counts[row] >= 0:
            after = element + counts[row]
            lengths[row] += offsets[after] - offsets[element] + counts[row] + 1
            element = after


@kernel
def write_lists(counts: Ints, offsets: Ints, rows: Bytes, flip: int, cursors: Ints, data: Bytes) -> None:
    """Append 1 and the encoded element for each element, then 0; nothing for a null list."""
    mask = np.uint8(flip)
    element = 0
    for row in range(cursors.size):
        at = cursors[row]
        for _ in range(counts[row]):
            data[at] = np.uint8(1) ^ mask
            at += 1
            for k in range(offsets[element], offsets[element + 1]):
                data[at] = rows[k] ^ mask
                at += 1
            element += 1
        if counts[row] >= 0:
            data[at] = mask
            at += 1
        cursors[row] = at


@kernel
def classify(sync: Ints) -> int:
    """Return INCREASING when no two neighbours are equal, TIED when some are, UNORDERED otherwise."""
    kind = INCREASING
    for row in range(1, sync.size):
        if sync[row] <= sync[row - 1]:
            if sync[row] < sync[row - 1]:
                return UNORDERED
            kind = TIED
    return kind


@kernel
def find_ties(sync: Ints, order: Ints, rows: Ints, starts: Ints) -> tuple[int, int]:
    """Collect the rows of all runs of equal `sync` under `order`, and where each run starts among them.

    Returns how many rows and how many runs; one more start closes the last run.
    """
    tied, runs = 0, 0
    row = 0
    while row < order.size:
        end = row + 1
        while end < order.size and sync[order[end]] == sync[order[row]]:
            end += 1
        if end > row + 1:
            starts[runs] = tied
            runs += 1
            for k in range(row, end):
                rows[tied] = order[k]
                tied += 1
        row = end
    starts[runs] = tied
    return tied, runs


@inlined
def _after(offsets: Ints, data: Bytes, a: int, b: int, skip: int) -> bool:
    """Say whether row `a` comes after row `b`, which share `skip` bytes; equal rows do not."""
    one = np.uint64(1)
    i, end = np.uint64(offsets[a] + skip), np.uint64(offsets[a + 1])
    j, other_end = np.uint64(offsets[b] + skip), np.uint64(offsets[b + 1])
    while i < end and j < other_end:
        if data[i] != data[j]:
            return data[i] > data[j]
        i += one
        j += one
    return i < end


@inlined
def _key_rows(offsets: Ints, data: Bytes, order: Ints, keys: Words, low: int, high: int) -> int:
    """Key each row by the 8 bytes after those that all rows of a run share; return how many those are."""
    start = offsets[order[low]]
    shared = offsets[order[low] + 1] - start
    for k in range(low + 1, high):
        row = offsets[order[k]]
        shared = min(shared, offsets[order[k] + 1] - row)
        same = 0
        while same < shared and data[row + same] == data[start + same]:
            same += 1
        shared = same
    for k in range(low, high):
        row, end = offsets[order[k]] + shared, offsets[order[k] + 1]
        key = np.uint64(0)
        for at in range(row, row + 8):
            key = key << np.uint64(8) | np.uint64(data[at] if at < end else 0)
        keys[k] = key
    return shared


@kernel
def _sort_run(
    offsets: Ints, data: Bytes, order: Ints, keys: Words, spare: Ints, spare_keys: Words, low: int, high: int
) -> bool:
    """Sort one run by merging runs twice as long each time; keys travel with the rows."""
    moved = False
    shared = _key_rows(offsets, data, order, keys, low, high)
    for chunk in range(low, high, SHORT):
        for row in range(chunk + 1, min(chunk + SHORT, high)):
            at, item, key = row, order[row], keys[row]
            while at > chunk and (
                keys[at - 1] > key or (keys[at - 1] == key and _after(offsets, data, order[at - 1], item, shared))
            ):
                order[at] = order[at - 1]
                keys[at] = keys[at - 1]
                at -= 1
                moved = True
            order[at] = item
            keys[at] = key
    width = SHORT
    while width < high - low:
        for left in range(low, high - width, 2 * width):
            middle, end = left + width, min(left + 2 * width, high)
            if keys[middle - 1] < keys[middle]:
                continue
            for k in range(left, middle):
                spare[k] = order[k]
                spare_keys[k] = keys[k]
            i, j, out = left, middle, left
            while i < middle:
                if j < end and (
                    spare_keys[i] > keys[j]
                    or (spare_keys[i] == keys[j] and _after(offsets, data, spare[i], order[j], shared))
                ):
                    order[out] = order[j]
                    keys[out] = keys[j]
                    j += 1
                    moved = True
                else:
                    order[out] = spare[i]
                    keys[out] = spare_keys[i]
                    i += 1
                out += 1
        width *= 2
    return moved


@allocating
def sort_ties(starts: Ints, runs: int, offsets: Ints, data: Bytes, order: Ints) -> bool:
    """Sort each run of `order`, which holds the numbers of encoded rows, stably; say whether any moved."""
    moved = False
    longest = 0
    for run in range(runs):
        longest = max(longest, starts[run + 1] - starts[run])
    words = order.size if longest > SHORT else 0
    keys, spare_keys = np.empty(words, np.uint64), np.empty(words, np.uint64)
    spare = np.empty(words, np.int64)
    for run in range(runs):
        low, high = starts[run], starts[run + 1]
        if high - low > SHORT:
            if _sort_run(offsets, data, order, keys, spare, spare_keys, low, high):
                moved = True
            continue
        for row in range(low + 1, high):
            at, item = row, order[row]
            while at > low and _after(offsets, data, order[at - 1], item, np.int64(0)):
                order[at] = order[at - 1]
                at -= 1
                moved = True
            order[at] = item
    return moved
