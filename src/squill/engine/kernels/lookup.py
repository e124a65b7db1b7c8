"""Loops over a table of rows by slot: rows put together by slot, and probes expanded to their matches."""

from __future__ import annotations

from squill.engine.kernels.jit import kernel

__all__ = ["expand_matches", "find_sorted", "group_by_slot", "group_sorted"]


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


@kernel
def group_sorted(code, keys, starts):
    """Write the distinct ones of sorted codes to `keys`, where each begins to `starts`, and return their number."""
    n = 0
    for i in range(len(code)):
        if i == 0 or code[i] != code[i - 1]:
            keys[n] = code[i]
            starts[n] = i
            n += 1
    starts[n] = len(code)
    return n


@kernel
def find_sorted(code, valid, keys, position, out):
    """Give each of sorted codes its place in the sorted `keys`, or −1, from `position` on; return where to go on."""
    for i in range(len(code)):
        out[i] = -1
        if valid[i] == 1:
            while position < len(keys) and keys[position] < code[i]:
                position += 1
            if position < len(keys) and keys[position] == code[i]:
                out[i] = position
    return position
