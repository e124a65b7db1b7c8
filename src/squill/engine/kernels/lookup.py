"""Loops over a table of rows by slot: rows put together by slot, and probes expanded to their matches."""

from __future__ import annotations

from squill.engine.kernels.jit import kernel

__all__ = ["expand_matches", "group_by_slot"]


@kernel
def group_by_slot(slot, starts, order):
    """Fill `starts` (zeros, slots + 1) with the first place of each slot and `order` with the rows by slot.

    Rows of a slot keep their order.
    """
    for i in range(len(slot)):
        starts[slot[i] + 1] += 1
    for s in range(1, len(starts)):
        starts[s] += starts[s - 1]
    for i in range(len(slot) - 1, -1, -1):
        # Places are taken from each slot's end; the ends become the beginnings.
        s = slot[i] + 1
        starts[s] -= 1
        order[starts[s]] = i
    for s in range(1, len(starts) - 1):
        starts[s] = starts[s + 1]
    starts[len(starts) - 1] = len(slot)


@kernel
def expand_matches(slot, starts, row, skip, out_row, out_place):
    """Write every probe with every place of its slot, from match `skip` of probe `row` on, until the output is full.

    A slot of −1 has no match. Returns the probe and match to go on with, and how many pairs were written.
    """
    n = 0
    capacity = len(out_row)
    while row < len(slot):
        s = slot[row]
        if s >= 0:
            place = starts[s] + skip
            end = starts[s + 1]
            while place < end:
                if n == capacity:
                    return row, place - starts[s], n
                out_row[n] = row
                out_place[n] = place
                n += 1
                place += 1
        row += 1
        skip = 0
    return row, 0, n
