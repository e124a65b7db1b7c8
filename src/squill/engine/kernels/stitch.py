"""Stitch: at each instant, events that end hand their start on to equal events that begin.

``open_starts`` holds, per (payload, raw start), the stitched starts of the events open there; ``ended``
holds, per payload, the stitched starts of the events that end in the open instant; ``begun[slot]`` counts
the events that begin in it; ``pending[0]`` is how many of both wait for the instant's end.
"""

from __future__ import annotations

from squill.engine.kernels.jit import kernel
from squill.engine.kernels.multiset import insert, remove, size, smallest

__all__ = ["stitch_instants"]


@kernel
def stitch_instants(
    d_slot, d_sign, d_row, n_deltas, i_delta, i_cell, n_instants, c_slot, c_time, groups, group_now,
    open_starts, ended, begun, pending, sync, other, row_slot,
):  # fmt: skip
    """Write the edges of the finished instants; returns how many, or −1 when an end has no start.

    ``groups`` is the (payload, raw start) group of each stored row, ``group_now[slot]`` the group of the
    payload's events that begin in the instant under way.
    """
    n_rows = 0
    d = 0
    c = 0
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            slot = d_slot[d]
            group = groups[d_row[d]]
            if d_sign[d] > 0:
                begun[slot] += 1
                pending[0] += 1
                group_now[slot] = group
            else:
                if size(open_starts, group) == 0:
                    return -1
                start = smallest(open_starts, group)
                remove(open_starts, group, start, 0)
                insert(ended, slot, start, 0)
                pending[0] += 1
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = c_slot[c]
                t = c_time[c]
                while size(ended, slot) > 0:
                    start = smallest(ended, slot)
                    remove(ended, slot, start, 0)
                    pending[0] -= 1
                    if begun[slot] > 0:
                        begun[slot] -= 1
                        pending[0] -= 1
                        insert(open_starts, group_now[slot], start, 0)
                    else:
                        sync[n_rows] = t
                        other[n_rows] = start
                        row_slot[n_rows] = slot
                        n_rows += 1
                while begun[slot] > 0:
                    begun[slot] -= 1
                    pending[0] -= 1
                    insert(open_starts, group_now[slot], t, 0)
                    sync[n_rows] = t
                    other[n_rows] = 2**63 - 1
                    row_slot[n_rows] = slot
                    n_rows += 1
                c += 1
    return n_rows
