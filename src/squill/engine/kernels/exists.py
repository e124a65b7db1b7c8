"""Loops that follow, per left row, whether anything on the right matches it.

What they show is written as edges: arrays of SYNC, OTHER (infinity for a start edge), the ENTRY of the left row and
the NUMBER of the part that begins or ends.
"""

from __future__ import annotations

import numpy as np

from squill.engine.kernels.jit import allocating, inlined
from squill.engine.kernels.join import LEFT, RIGHT, link, unlink

__all__ = ["follow_counts", "follow_presence", "list_pairs"]

SYNC, OTHER, ENTRY, NUMBER = 0, 1, 2, 3
EDGE = 4
INFINITY = 2**63 - 1
HIDDEN = -(2**63)  # in place of the begin of a part that is shown

# What `list_pairs` writes: a left row begins or ends, or a right row that may match it does.
LEFT_ENDS, PAIR_ENDS, PAIR_BEGINS, LEFT_BEGINS = 0, 1, 2, 3


@allocating
def larger(array):
    bigger = np.empty((array.shape[0], 2 * array.shape[1]), array.dtype)
    bigger[:, : array.shape[1]] = array
    return bigger


@inlined
def show(out, n, t, e, shown_since, numbers, counter):
    out[SYNC, n], out[OTHER, n], out[ENTRY, n], out[NUMBER, n] = t, INFINITY, e, counter[0]
    shown_since[e] = t
    numbers[e] = counter[0]
    counter[0] += 1


@inlined
def hide(out, n, t, e, shown_since, numbers):
    out[SYNC, n], out[OTHER, n], out[ENTRY, n], out[NUMBER, n] = t, shown_since[e], e, numbers[e]
    shown_since[e] = HIDDEN


@allocating
def follow_presence(
    time, side, entry, is_start, slot, negated, heads, following, preceding, shown_since, numbers, counter,
    was_present,
):  # fmt: skip
    """Show left rows while their key has live right rows (`negated`: while it has none).

    Changes come in whole instants. ``heads[slot, RIGHT]`` counts live right rows; ``was_present`` is scratch by
    slot, all zeros. Returns the number of edges, and the edges.
    """
    out = np.empty((EDGE, 2 * len(time) + 16), np.int64)
    touched = np.empty(len(time), np.int64)
    n = 0
    low = 0
    while low < len(time):
        t = time[low]
        high = low
        while high < len(time) and time[high] == t:
            high += 1
        if n + high - low >= out.shape[1]:
            out = larger(out)
        n_touched = 0
        for i in range(low, high):
            s, e = slot[i], entry[i]
            if side[i] == RIGHT:
                if was_present[s] == 0:
                    was_present[s] = 1 + (heads[s, RIGHT] > 0)
                    touched[n_touched] = s
                    n_touched += 1
                heads[s, RIGHT] += 1 if is_start[i] else -1
            elif not is_start[i]:
                unlink(s, LEFT, e, heads, following, preceding)
                if shown_since[e] != HIDDEN:
                    hide(out, n, t, e, shown_since, numbers)
                    n += 1
        for k in range(n_touched):
            s = touched[k]
            before, now = was_present[s] == 2, heads[s, RIGHT] > 0
            was_present[s] = 0
            if before == now:
                continue
            node = heads[s, LEFT]
            while node > 0:
                # The starts of this instant still need their room.
                if n + high - low >= out.shape[1]:
                    out = larger(out)
                e = node - 1
                if now != negated:
                    show(out, n, t, e, shown_since, numbers, counter)
                else:
                    hide(out, n, t, e, shown_since, numbers)
                n += 1
                node = following[e]
        for i in range(low, high):
            if side[i] == LEFT and is_start[i]:
                s, e = slot[i], entry[i]
                link(s, LEFT, e, heads, following, preceding)
                shown_since[e] = HIDDEN
                if (heads[s, RIGHT] > 0) != negated:
                    show(out, n, t, e, shown_since, numbers, counter)
                    n += 1
        low = high
    return n, out


@allocating
def list_pairs(
    time, side, entry, is_start, slot, heads, l_following, l_preceding, r_following, r_preceding,
):  # fmt: skip
    """List the begins and ends of left rows and of all pairs with equal keys, instant by instant.

    Returns their number, and arrays of time, kind, left and right entry.
    """
    out = np.empty((4, 2 * len(time) + 16), np.int64)
    n = 0
    low = 0
    while low < len(time):
        t = time[low]
        high = low
        while high < len(time) and time[high] == t:
            high += 1
        # Left ends, right ends, right starts, left starts: so each pair that is alive at t begins once.
        for phase in range(4):
            for i in range(low, high):
                s, e = slot[i], entry[i]
                of_left = phase == LEFT_ENDS or phase == LEFT_BEGINS
                if (side[i] == LEFT) != of_left or is_start[i] != (phase >= PAIR_BEGINS):
                    continue
                if phase == LEFT_ENDS:
                    unlink(s, LEFT, e, heads, l_following, l_preceding)
                elif phase == PAIR_ENDS:
                    unlink(s, RIGHT, e, heads, r_following, r_preceding)
                if of_left:
                    if n == out.shape[1]:
                        out = larger(out)
                    out[0, n], out[1, n], out[2, n], out[3, n] = t, phase, e, -1
                    n += 1
                if phase != LEFT_ENDS:
                    node = heads[s, RIGHT] if phase == LEFT_BEGINS else heads[s, LEFT]
                    kind = PAIR_ENDS if phase == PAIR_ENDS else PAIR_BEGINS
                    while node > 0:
                        if n == out.shape[1]:
                            out = larger(out)
                        out[0, n], out[1, n] = t, kind
                        if phase == LEFT_BEGINS:
                            out[2, n], out[3, n] = e, node - 1
                            node = r_following[node - 1]
                        else:
                            out[2, n], out[3, n] = node - 1, e
                            node = l_following[node - 1]
                        n += 1
                if phase == PAIR_BEGINS:
                    link(s, RIGHT, e, heads, r_following, r_preceding)
                elif phase == LEFT_BEGINS:
                    link(s, LEFT, e, heads, l_following, l_preceding)
        low = high
    return n, out


@allocating
def follow_counts(time, kind, left, passes, negated, matches, shown_since, numbers, counter, out):
    """Show left rows while they have matches (`negated`: while they have none).

    ``passes`` says which of the pairs that `list_pairs` wrote match; ``matches`` counts per left
    entry. The output has room for two edges for every listed row. Returns the number of edges.
    """
    n = 0
    low = 0
    while low < len(time):
        t = time[low]
        high = low
        while high < len(time) and time[high] == t:
            what, e = kind[high], left[high]
            if what == LEFT_BEGINS:
                matches[e] = 0
                shown_since[e] = HIDDEN
            elif what == PAIR_BEGINS and passes[high]:
                matches[e] += 1
            elif what == PAIR_ENDS and passes[high]:
                matches[e] -= 1
            elif what == LEFT_ENDS and shown_since[e] != HIDDEN:
                hide(out, n, t, e, shown_since, numbers)
                n += 1
            high += 1
        for i in range(low, high):
            e = left[i]
            if kind[i] == LEFT_ENDS:
                continue
            is_shown, shall_be = shown_since[e] != HIDDEN, (matches[e] > 0) != negated
            if is_shown and not shall_be:
                hide(out, n, t, e, shown_since, numbers)
                n += 1
            elif shall_be and not is_shown:
                show(out, n, t, e, shown_since, numbers, counter)
                n += 1
        low = high
    return n
