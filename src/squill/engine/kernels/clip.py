"""The loop that cuts lifetimes at the next start on another stream."""

from __future__ import annotations

import numpy as np

from squill.engine.kernels.exists import larger
from squill.engine.kernels.jit import kernel
from squill.engine.kernels.join import LEFT, link, unlink

__all__ = ["clip_by_starts"]

INFINITY = 2**63 - 1


@kernel
def clip_by_starts(time, side, entry, is_start, slot, heads, following, preceding, start, is_open):
    """End all live left rows of a key when a right row of it begins.

    Changes come in whole instants, left ends first. ``is_open[entry]`` is 1 while a left row lives. Returns the
    number of edges, and sync, other and entry of each.
    """
    out_sync, out_other = np.empty(len(time) + 16, np.int64), np.empty(len(time) + 16, np.int64)
    out_entry = np.empty(len(time) + 16, np.int64)
    n = 0
    low = 0
    while low < len(time):
        t = time[low]
        high = low
        while high < len(time) and time[high] == t:
            s, e = slot[high], entry[high]
            if side[high] == LEFT and not is_start[high] and is_open[e]:
                is_open[e] = 0
                unlink(s, LEFT, e, heads, following, preceding)
                out_sync, out_other, out_entry = larger(out_sync, n), larger(out_other, n), larger(out_entry, n)
                out_sync[n], out_other[n], out_entry[n] = t, start[e], e
                n += 1
            high += 1
        for i in range(low, high):
            if side[i] == LEFT or not is_start[i]:
                continue
            s = slot[i]
            node = heads[s, LEFT]
            while node > 0:
                e = node - 1
                is_open[e] = 0
                out_sync, out_other, out_entry = larger(out_sync, n), larger(out_other, n), larger(out_entry, n)
                out_sync[n], out_other[n], out_entry[n] = t, start[e], e
                n += 1
                node = following[e]
            heads[s, LEFT] = 0
        for i in range(low, high):
            if side[i] == LEFT and is_start[i]:
                s, e = slot[i], entry[i]
                link(s, LEFT, e, heads, following, preceding)
                is_open[e] = 1
                out_sync, out_other, out_entry = larger(out_sync, n), larger(out_other, n), larger(out_entry, n)
                out_sync[n], out_other[n], out_entry[n] = t, INFINITY, e
                n += 1
        low = high
    return n, out_sync, out_other, out_entry
