"""Folds over ordered multisets: positions (min, max, percentiles, first, last), lists and top-k.

Every slot has an ordered multiset of codes. The deltas of an instant insert and remove codes, by value;
then the codes that the calls asked for are read for each cell, all in the same pass over the changes, in the
order of `kernels.arrange`. Where codes are ids of byte strings, `references` counts how often each id is held by
any multiset, so that ids that nobody holds any more can be given back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.arrange import CELL, CELL_SIZE, CHANGE_SIZE, END, OF_SLOT
from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import prefetch_word
from squill.engine.kernels.multiset import (
    GROUP,
    copy_range,
    insert,
    kth,
    locate,
    prefetch,
    remove,
    size,
    size_and_run,
)

__all__ = [
    "count_references",
    "fold_lists",
    "fold_positions",
    "fold_running",
    "interpolate",
    "new_ids",
    "rank_lists",
    "unreferenced",
]

Array = Any

# What is read of a cell's multiset.
SMALLEST, LARGEST, DISCRETE, BELOW, ABOVE = 0, 1, 2, 3, 4

CELLS_AHEAD = 8  # how far ahead the place for what is read is fetched

# Where `fold_lists` goes on.
DONE_CHANGES, DONE_CELLS, USED = 0, 1, 2
PROGRESS_SIZE = 3
DONE, FULL, ABSENT = 0, 1, 2


@inlined
def position(kind: int, share: float, n: int) -> int:
    """Return which of the `n` sorted codes a call with this `share` reads."""
    if kind == SMALLEST:
        return np.int64(0)
    if kind == LARGEST:
        return n - 1
    if kind == DISCRETE:
        return max(np.int64(np.ceil(share * n)) - 1, 0)
    rank = share * (n - 1)
    return np.int64(np.floor(rank)) if kind == BELOW else np.int64(np.ceil(rank))


@kernel
def count_references(changes: Array, references: Array, released: Array) -> int:
    """Count how often each id is held; write the ids that nobody holds any more, and return how many."""
    n = np.int64(0)
    for d in range(0, len(changes), CHANGE_SIZE):
        code = changes[d + 1]
        if changes[d] & 1:
            references[code] += 1
            continue
        references[code] -= 1
        if references[code] == 0:
            released[n] = code
            n += 1
    return n


@kernel
def fold_positions(changes: Array, cells: Array, state: Any, kinds: Array, shares: Array, out: Array) -> int:
    """Write for each cell how many codes there are and the code at each asked position, one after the other.

    Returns the change that removes what is not there, or -1.
    """
    arena = state[0]
    d = np.int64(0)
    width, n_cells = 1 + len(kinds), len(cells)
    for j in range(0, n_cells + 1, CELL_SIZE):
        stop = np.int64(cells[u(j + END)] if j < n_cells else len(changes) // CHANGE_SIZE)
        while d < stop:
            if d & (GROUP - 1) == 0:
                prefetch(state, changes, d)
            what, code = changes[u(2 * d)], changes[u(2 * d + 1)]
            if what & 1:
                insert(state, what >> 1, code, d)
            elif not remove(state, what >> 1, code, d):
                return d
            d += 1
        if j == n_cells:
            break
        prefetch_word(out, np.int64(width * cells[u(min(j + CELLS_AHEAD * CELL_SIZE, n_cells - CELL_SIZE))]))
        row = np.int64(width * cells[u(j + CELL)])
        slot = cells[u(j + OF_SLOT)]
        n, run = size_and_run(state, slot)
        out[u(row)] = n
        at, first, last = run, np.int64(0), np.int64(-1)  # the code at these positions is at this address
        for r in range(len(kinds)):
            row += 1
            if n == 0:
                out[u(row)] = 0
                continue
            wanted = position(kinds[r], shares[r], n)
            if run > 0:
                at = run + wanted
            elif wanted < first or wanted > last:
                at, first, last = locate(state, slot, wanted)
            out[u(row)] = arena[u(at)]
    return np.int64(-1)


@inlined
def precedes(text: Any, a: int, b: int) -> bool:
    """Whether code `a` comes before code `b`."""
    if text is None:
        return a < b
    data, starts, lengths = text
    start, other = starts[a], starts[b]
    shared = min(lengths[a], lengths[b])
    for k in range(shared):
        if data[start + k] != data[other + k]:
            return data[start + k] < data[other + k]
    return lengths[a] < lengths[b]


@inlined
def replace(held: Array, slot: int, code: int, first: bool, references: Array, released: Array, n: int) -> int:
    """Hold `code` instead of what the slot holds; return how many ids are released now."""
    if len(references) > 0:
        references[code] += 1
        if not first:
            old = held[slot]
            references[old] -= 1
            if references[old] == 0:
                released[n] = old
                n += 1
    held[slot] = code
    return n


@kernel
def fold_running(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, codes: Array, valid: Array, text: Any, counts: Array, lows: Array,
    highs: Array, references: Array, released: Array, kinds: Array, out: Array,
) -> int:  # fmt: skip
    """Write what `fold_positions` does where nothing ever leaves: two codes per slot are all the state.

    Returns how many ids were released.
    """
    n_released = np.int64(0)
    width = 1 + len(kinds)
    d = np.int64(0)
    c = np.int64(0)
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            row = d_row[d]
            if valid[row]:
                slot = d_slot[d]
                code = codes[row]
                first = counts[slot] == 0
                if first or precedes(text, code, lows[slot]):
                    n_released = replace(lows, slot, code, first, references, released, n_released)
                if first or precedes(text, highs[slot], code):
                    n_released = replace(highs, slot, code, first, references, released, n_released)
                counts[slot] += 1
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = c_slot[c]
                out[width * c] = counts[slot]
                for r in range(len(kinds)):
                    out[width * c + r + 1] = lows[slot] if kinds[r] == SMALLEST else highs[slot]
                c += 1
    return n_released


@kernel
def interpolate(low: Array, high: Array, sizes: Array, share: float, out: Array) -> None:
    """Write the value between two neighbours at rank share · (n − 1)."""
    for c in range(len(sizes)):
        n = sizes[c]
        if n == 0:
            out[c] = 0.0
            continue
        rank = share * (n - 1)
        fraction = rank - np.floor(rank)
        a = low[c]
        b = high[c]
        if fraction == 0.0:
            out[c] = a
            continue
        value = a + (b - a) * fraction
        if not np.isfinite(value) and np.isfinite(a) and np.isfinite(b):  # b − a left the range
            value = a * (1.0 - fraction) + b * fraction
        out[c] = value


@inlined
def same_prefix(text: Any, prefixes: Array, a: int, b: int) -> bool:
    """Whether the byte strings `a` and `b` begin with the same prefix."""
    n = prefixes[a]
    if n != prefixes[b]:
        return False
    data, starts, _ = text
    start, other = starts[a], starts[b]
    for k in range(n):
        if data[start + k] != data[other + k]:
            return False
    return True


@inlined
def wanted(state: Any, slot: int, limit: int, prefixes: Array) -> int:
    """Return how many codes a cell lists: all, or `limit` and those that tie with the last of them."""
    n = size(state, slot)
    if limit < 0 or n <= limit:
        return n
    text = state[1]
    last = kth(state, slot, limit - 1)
    while limit < n and same_prefix(text, prefixes, last, kth(state, slot, limit)):
        limit += 1
    return limit


@kernel
def fold_lists(
    changes: Array, cells: Array, state: Any, limit: int, prefixes: Array, progress: Array, offsets: Array, out: Array
) -> tuple[int, int]:
    """Write the codes of each cell, in order: all of them, or the first `limit` with ties of the last.

    The cells must be arranged in their order. Stops where `out` is full; called again with the same arguments but
    `out`, it goes on. Returns a code and, when a change removes what is not there, that change or, when `out` is
    full, what the cell needs.
    """
    n_cells = len(cells) // CELL_SIZE
    for c in range(progress[DONE_CELLS], n_cells + 1):
        stop = cells[CELL_SIZE * c + END] if c < n_cells else len(changes) // CHANGE_SIZE
        for d in range(progress[DONE_CHANGES], stop):
            if d & (GROUP - 1) == 0:
                prefetch(state, changes, d)
            slot, code = changes[CHANGE_SIZE * d] >> 1, changes[CHANGE_SIZE * d + 1]
            if changes[CHANGE_SIZE * d] & 1:
                insert(state, slot, code, d)
            elif not remove(state, slot, code, d):
                return ABSENT, d
        progress[DONE_CHANGES] = stop
        if c < n_cells:
            slot = cells[CELL_SIZE * c + OF_SLOT]
            n = wanted(state, slot, limit, prefixes)
            used = progress[USED]
            if used + n > len(out):
                return FULL, n
            copy_range(state, slot, 0, n, out[used:])
            progress[USED] = used + n
            offsets[c + 1] = used + n
            progress[DONE_CELLS] = c + 1
    return DONE, 0


@kernel
def rank_lists(offsets: Array, ids: Array, text: Any, prefixes: Array, out: Array) -> None:
    """Write the competition rank of each listed id: equal prefixes share a rank, the next ones skip."""
    for c in range(len(offsets) - 1):
        first = offsets[c]
        for j in range(first, offsets[c + 1]):
            if j > first and same_prefix(text, prefixes, ids[j - 1], ids[j]):
                out[j] = out[j - 1]
            else:
                out[j] = j - first + 1


@kernel
def unreferenced(ids: Array, references: Array, out: Array) -> int:
    """Write the ids that nobody holds, each once and marked with -1; returns how many."""
    n = 0
    for i in range(len(ids)):
        if references[ids[i]] == 0:
            references[ids[i]] = -1
            out[n] = ids[i]
            n += 1
    return n


@kernel
def new_ids(ids: Array, places: Array, next_place: int, rows: Array) -> int:
    """Give a place to each id that has none (0), from `next_place` on; write their rows, return how many."""
    n = 0
    for i in range(len(ids)):
        if places[ids[i]] == 0:
            places[ids[i]] = next_place + n
            rows[n] = i
            n += 1
    return n
