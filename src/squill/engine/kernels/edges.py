"""Match end edges with the start edges they end: first in, first out among equals."""

from __future__ import annotations

from squill.engine.kernels.jit import kernel

__all__ = ["first_open", "match_edges", "write_ends"]

NONE = -1


@kernel
def match_edges(sync, other, slot, first, last, following, end):
    """Give every start edge its end; ``slot`` says which rows are equal.

    ``first``/``last`` per slot and ``following`` per row are the queues of open rows. Returns the first end
    edge that ends nothing, or −1.
    """
    for i in range(len(sync)):
        s = slot[i]
        if other[i] < sync[i]:
            row = first[s]
            if row == NONE:
                return i
            end[row] = sync[i]
            first[s] = following[row]
        else:
            following[i] = NONE
            if first[s] == NONE:
                first[s] = i
            else:
                following[last[s]] = i
            last[s] = i
    return NONE


@kernel
def write_ends(target, ids, ends, first, last):
    """target[id − first] = end for the numbers from `first` up to, not including, `last`."""
    for i in range(len(ids)):
        if first <= ids[i] < last:
            target[ids[i] - first] = ends[i]


@kernel
def first_open(ends, begin, size):
    """Return the first place from `begin` on that is infinite, or `size`."""
    for i in range(begin, size):
        if ends[i] == 2**63 - 1:
            return i
    return size


@kernel
def open_and_close(sync, is_start, slot, found, chains, following, end_of, is_open):
    """Append start edges to the chain of their slot, end the first of the chain for each end edge.

    ``found[i]`` holds the entry of a start edge and receives that of an end edge; ``chains[slot]`` is the
    first and last entry + 1. Returns the first end edge that ends nothing, or −1.
    """
    for i in range(len(sync)):
        s = slot[i]
        if is_start[i]:
            entry = found[i]
            following[entry] = NONE
            end_of[entry] = 2**63 - 1
            is_open[entry] = 1
            if chains[s, 0] == 0:
                chains[s, 0] = entry + 1
            else:
                following[chains[s, 1] - 1] = entry
            chains[s, 1] = entry + 1
        else:
            if chains[s, 0] == 0:
                return i
            entry = chains[s, 0] - 1
            chains[s, 0] = following[entry] + 1
            end_of[entry] = sync[i]
            is_open[entry] = 0
            found[i] = entry
    return NONE
