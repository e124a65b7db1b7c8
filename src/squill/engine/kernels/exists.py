"""Loops that follow, per left row, whether anything on the right matches it."""

from __future__ import annotations

import numpy as np

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.join import LEFT, RIGHT, link, unlink

__all__ = ["follow_counts", "follow_presence", "list_pairs"]

INFINITY = 2**63 - 1
HIDDEN = -(2**63)  # in place of the begin of a part that is shown

# What `list_pairs` writes: a left row begins or ends, or a right row that may match it does.
LEFT_ENDS, PAIR_ENDS, PAIR_BEGINS, LEFT_BEGINS = 0, 1, 2, 3


@inlined
def larger(array, n):
    if n < len(array):
        return array
    bigger = np.empty(max(2 * len(array), 1024), array.dtype)
    bigger[: len(array)] = array
    return bigger


@kernel
def follow_presence(
    time, side, entry, is_start, slot, negated, heads, following, preceding, shown_since, was_present,
):  # fmt: skip
    """Show left rows while their key has live right rows (`negated`: while it has none).

    Changes come in whole instants. ``heads[slot, RIGHT]`` counts live right rows; ``was_present`` is scratch by
    slot, all zeros. Returns the number of edges, and sync, other and entry of each.
    """
    out_sync, out_other = np.empty(len(time) + 16, np.int64), np.empty(len(time) + 16, np.int64)
    out_entry = np.empty(len(time) + 16, np.int64)
    touched = np.empty(len(time), np.int64)
    n = 0
    low = 0
    while low < len(time):
        t = time[low]
        high = low
        while high < len(time) and time[high] == t:
            high += 1
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
                    out_sync, out_other, out_entry = larger(out_sync, n), larger(out_other, n), larger(out_entry, n)
                    out_sync[n], out_other[n], out_entry[n] = t, shown_since[e], e
                    n += 1
        for k in range(n_touched):
            s = touched[k]
            before, now = was_present[s] == 2, heads[s, RIGHT] > 0
            was_present[s] = 0
            if before == now:
                continue
            node = heads[s, LEFT]
            while node > 0:
                e = node - 1
                out_sync, out_other, out_entry = larger(out_sync, n), larger(out_other, n), larger(out_entry, n)
                out_sync[n], out_entry[n] = t, e
                if now != negated:
                    out_other[n] = INFINITY
                    shown_since[e] = t
                else:
                    out_other[n] = shown_since[e]
                    shown_since[e] = HIDDEN
                n += 1
                node = following[e]
        for i in range(low, high):
            if side[i] == LEFT and is_start[i]:
                s, e = slot[i], entry[i]
                link(s, LEFT, e, heads, following, preceding)
                shown_since[e] = HIDDEN
                if (heads[s, RIGHT] > 0) != negated:
                    shown_since[e] = t
                    out_sync, out_other, out_entry = larger(out_sync, n), larger(out_other, n), larger(out_entry, n)
                    out_sync[n], out_other[n], out_entry[n] = t, INFINITY, e
                    n += 1
        low = high
    return n, out_sync, out_other, out_entry


@kernel
def list_pairs(
    time, side, entry, is_start, slot, heads, l_following, l_preceding, r_following, r_preceding,
):  # fmt: skip
    """List the begins and ends of left rows and of all pairs with equal keys, instant by instant.

    Returns their number, and time, kind, left and right entry of each.
    """
    out_time, out_kind = np.empty(2 * len(time) + 16, np.int64), np.empty(2 * len(time) + 16, np.int8)
    out_left, out_right = np.empty(2 * len(time) + 16, np.int64), np.empty(2 * len(time) + 16, np.int64)
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
                    out_time, out_kind = larger(out_time, n), larger(out_kind, n)
                    out_left, out_right = larger(out_left, n), larger(out_right, n)
                    out_time[n], out_kind[n], out_left[n], out_right[n] = t, phase, e, -1
                    n += 1
                if phase != LEFT_ENDS:
                    node = heads[s, RIGHT] if phase == LEFT_BEGINS else heads[s, LEFT]
                    kind = PAIR_ENDS if phase == PAIR_ENDS else PAIR_BEGINS
                    while node > 0:
                        out_time, out_kind = larger(out_time, n), larger(out_kind, n)
                        out_left, out_right = larger(out_left, n), larger(out_right, n)
                        out_time[n], out_kind[n] = t, kind
                        if phase == LEFT_BEGINS:
                            out_left[n], out_right[n] = e, node - 1
                            node = r_following[node - 1]
                        else:
                            out_left[n], out_right[n] = node - 1, e
                            node = l_following[node - 1]
                        n += 1
                if phase == PAIR_BEGINS:
                    link(s, RIGHT, e, heads, r_following, r_preceding)
                elif phase == LEFT_BEGINS:
                    link(s, LEFT, e, heads, l_following, l_preceding)
        low = high
    return n, out_time, out_kind, out_left, out_right


@kernel
def follow_counts(time, kind, left, passes, negated, matches, shown_since, out_sync, out_other, out_entry):
    """Show left rows while they have matches (`negated`: while they have none).

    ``passes`` says which listed pairs match; ``matches`` counts per left entry. The output holds two rows for
    every listed one. Returns the number of edges.
    """
    n = 0
    low = 0
    while low < len(time):
        t = time[low]
        high = low
        while high < len(time) and time[high] == t:
            e = left[high]
            if kind[high] == LEFT_BEGINS:
                matches[e] = 0
                shown_since[e] = HIDDEN
            elif kind[high] == PAIR_BEGINS and passes[high]:
                matches[e] += 1
            elif kind[high] == PAIR_ENDS and passes[high]:
                matches[e] -= 1
            elif kind[high] == LEFT_ENDS and shown_since[e] != HIDDEN:
                out_sync[n], out_other[n], out_entry[n] = t, shown_since[e], e
                shown_since[e] = HIDDEN
                n += 1
            high += 1
        for i in range(low, high):
            e = left[i]
            if kind[i] == LEFT_ENDS:
                continue
            is_shown, shall_be = shown_since[e] != HIDDEN, (matches[e] > 0) != negated
            if is_shown and not shall_be:
                out_sync[n], out_other[n], out_entry[n] = t, shown_since[e], e
                shown_since[e] = HIDDEN
                n += 1
            elif shall_be and not is_shown:
                out_sync[n], out_other[n], out_entry[n] = t, INFINITY, e
                shown_since[e] = t
                n += 1
        low = high
    return n
