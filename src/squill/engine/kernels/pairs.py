"""Loops that put two events of a key side by side."""

from __future__ import annotations

from squill.engine.kernels.jit import kernel

__all__ = ["consecutive_pairs", "idle_slots", "sessionize"]

NONE = -1
INFINITY = 2**63 - 1

# What waits under a slot, + 1 so that fresh zeros mean "nothing": the place of an event, beside the time until when it
# may be paired, or the first and the last entry of a chain of events. The last column is a mark, zero between calls.
WAITING, UNTIL, MARK = 0, 1, 2
FIRST, LAST = 0, 1
SLOT_SIZE = 3


@kernel
def idle_slots(slot, slots, out):
    """Write each of these slots under which nothing waits, once; return how many."""
    n = 0
    for i in range(len(slot)):
        s = slot[i]
        if slots[s, WAITING] == 0 and slots[s, MARK] == 0:
            slots[s, MARK] = 1
            out[n] = s
            n += 1
    for k in range(n):
        slots[out[k], MARK] = 0
    return n


@kernel
def consecutive_pairs(sync, slot, base, is_first, is_second, within, slots, out_left, out_right):
    """Pair every row with the row of its slot before it; returns how many pairs.

    Rows are at places `base`, base + 1, …; of a pair the left one's place and the right one's row are written.
    """
    n_out = 0
    for i in range(len(sync)):
        s = slot[i]
        t = sync[i]
        if slots[s, WAITING] != 0 and is_second[i] != 0 and t < slots[s, UNTIL]:
            out_left[n_out] = slots[s, WAITING] - 1
            out_right[n_out] = i
            n_out += 1
        slots[s, WAITING] = base + i + 1 if is_first[i] != 0 else 0
        slots[s, UNTIL] = INFINITY if within == 0 or t > INFINITY - within else t + within
    return n_out


@kernel
def sessionize(sync, slot, entries, is_end, slots, following, out_left, out_right):
    """Let every end event close the chain of its slot, then start events of its instant begin the next.

    ``entries`` is -1 for rows that are no start event. Writes the entry and the row of the end event; returns how
    many.
    """
    n_out = 0
    n = len(sync)
    low = 0
    while low < n:
        high = low
        while high < n and sync[high] == sync[low]:
            s = slot[high]
            if is_end[high] != 0 and slots[s, FIRST] != 0:
                entry = slots[s, FIRST] - 1
                while entry != NONE:
                    out_left[n_out] = entry
                    out_right[n_out] = high
                    n_out += 1
                    entry = following[entry]
                slots[s, FIRST] = 0
            high += 1
        for i in range(low, high):
            if entries[i] != NONE:
                s = slot[i]
                if slots[s, FIRST] == 0:
                    slots[s, FIRST] = entries[i] + 1
                else:
                    following[slots[s, LAST] - 1] = entries[i]
                slots[s, LAST] = entries[i] + 1
        low = high
    return n_out
