"""The loop that cuts lifetimes at the next start on another stream."""

from __future__ import annotations

import numpy as np

from squill.engine.kernels.exists import EDGE, HIDDEN, hide, larger, show
from squill.engine.kernels.jit import allocating
from squill.engine.kernels.join import LEFT, link, unlink

__all__ = ["clip_by_starts"]


@allocating
def clip_by_starts(time, side, entry, is_start, slot, heads, following, preceding, shown_since, numbers, counter):
    """Show left rows until they end, or until a right row of their key begins.

    Changes come in whole instants. Returns the number of edges, and the edges (see `exists`).
    """
    # Every left row is shown once and hidden once, those shown before may be hidden now.
    out = np.empty((EDGE, 2 * len(time) + 16), np.int64)
    n = 0
    low = 0
    while low < len(time):
        t = time[low]
        high = low
        while high < len(time) and time[high] == t:
            high += 1
        if n + high - low >= out.shape[1]:
            out = larger(out)
        for i in range(low, high):
            e = entry[i]
            if side[i] == LEFT and not is_start[i] and shown_since[e] != HIDDEN:
                unlink(slot[i], LEFT, e, heads, following, preceding)
                hide(out, n, t, e, shown_since, numbers)
                n += 1
        for i in range(low, high):
            if side[i] == LEFT or not is_start[i]:
                continue
            node = heads[slot[i], LEFT]
            while node > 0:
                if n + high - low >= out.shape[1]:
                    out = larger(out)
                hide(out, n, t, node - 1, shown_since, numbers)
                n += 1
                node = following[node - 1]
            heads[slot[i], LEFT] = 0
        for i in range(low, high):
            if side[i] == LEFT and is_start[i]:
                link(slot[i], LEFT, entry[i], heads, following, preceding)
                show(out, n, t, entry[i], shown_since, numbers, counter)
                n += 1
        low = high
    return n, out
