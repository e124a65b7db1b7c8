"""The loop of existence between inputs whose ends are known: left rows are shown where their key is covered, or is not.

A part that is shown is written once. Its end stands beside it when it comes in the same call; the ends of parts of
earlier calls are written apart.
"""

from __future__ import annotations

import numpy as np

from squill.engine.kernels.exists import larger
from squill.engine.kernels.jit import allocating, inlined
from squill.engine.kernels.join import LEFT, RIGHT

__all__ = ["LEFT_REST", "LEFT_ROW", "OF_END", "OF_SLOT", "SHOWN", "follow_coverage"]

# What is known of a left row: side by side what is read when its chain is walked, and apart from that the rest.
FOLLOWING, OF_END, NUMBER, SINCE = 0, 1, 2, 3
LEFT_ROW = 4
PRECEDING, OF_SLOT = 0, 1
LEFT_REST = 2

# Rows of what is written: parts that begin, and ends of parts that began in an earlier call.
SYNC, END, ENTRY = 0, 1, 2
BEGUN = 3
CLOSED_NUMBER, CLOSED_AT, CLOSED_SINCE, CLOSED_ENTRY = 0, 1, 2, 3
CLOSED = 4

INFINITY = 2**63 - 1
HIDDEN = -1  # in place of the number of the part that is shown
SHOWN = INFINITY  # in place of the time since when a key's rows are hidden
UNLINKED = -1  # in place of the entry before, of one that was dead when its chain was walked


@inlined
def link(s, e, heads, rows, rest):
    head = heads[s, LEFT]
    rows[e, FOLLOWING] = head
    rest[e, PRECEDING] = 0
    if head > 0:
        rest[head - 1, PRECEDING] = e + 1
    heads[s, LEFT] = e + 1


@inlined
def unlink(s, e, heads, rows, rest):
    after, before = rows[e, FOLLOWING], rest[e, PRECEDING]
    if before > 0:
        rows[before - 1, FOLLOWING] = after
    else:
        heads[s, LEFT] = after
    if after > 0:
        rest[after - 1, PRECEDING] = before


@inlined
def show(begun, n, t, e, first, rows):
    begun[SYNC, n], begun[END, n], begun[ENTRY, n] = t, INFINITY, e
    rows[e, NUMBER] = first + n
    rows[e, SINCE] = t


@inlined
def hide(begun, closed, n_closed, t, e, first, rows):
    """End the part that an entry shows; returns the number of ends that stand apart, which has grown or not."""
    number = rows[e, NUMBER]
    rows[e, NUMBER] = HIDDEN
    if number >= first:
        begun[END, number - first] = t
        return n_closed
    closed[CLOSED_NUMBER, n_closed], closed[CLOSED_AT, n_closed] = number, t
    closed[CLOSED_SINCE, n_closed], closed[CLOSED_ENTRY, n_closed] = rows[e, SINCE], e
    return n_closed + 1


@allocating
def follow_coverage(
    l_sync, l_slot, l_entry, r_sync, r_slot, over_time, over_slot, left_over, negated, heads, rows, rest,
    hidden_at, first, room,
):  # fmt: skip
    """Show left rows while their key has live right rows (`negated`: while it has none).

    All come in time order but `left_over`, the left entries that end in this call. In an instant right rows begin
    before others end, so that a key whose right rows follow one another stays covered; left rows begin last.
    ``heads[slot, RIGHT]`` counts live right rows, ``heads[slot, LEFT]`` begins the chain of left rows. Parts are
    numbered from `first` on; they begin in time order, but end in any. So what a key's rows end together is put off
    until they are shown again, or to the end, and their chain is walked once for both: ``hidden_at[slot]``, not so
    (`SHOWN`) between calls. Returns the number of parts that begin and the number of ends that stand apart, and
    both arrays, which have `room` to begin with and grow.
    """
    begun = np.empty((BEGUN, room), np.int64)
    closed = np.empty((CLOSED, room), np.int64)
    put_off = np.empty(len(r_sync) + len(over_time), np.int64)
    n = n_closed = n_put_off = 0
    i = j = k = 0
    while i < len(l_sync) or j < len(r_sync) or k < len(over_time):
        l_time = l_sync[i] if i < len(l_sync) else INFINITY
        r_time = r_sync[j] if j < len(r_sync) else INFINITY
        o_time = over_time[k] if k < len(over_time) else INFINITY
        if j < len(r_sync) and r_time <= l_time and r_time <= o_time:
            t, s, shall_show = r_time, r_slot[j], not negated
            j += 1
            heads[s, RIGHT] += 1
            has_changed = heads[s, RIGHT] == 1
        elif k < len(over_time) and o_time <= l_time:
            t, s, shall_show = o_time, over_slot[k], negated
            k += 1
            heads[s, RIGHT] -= 1
            has_changed = heads[s, RIGHT] == 0
        else:
            s, e = l_slot[i], l_entry[i]
            link(s, e, heads, rows, rest)
            rows[e, NUMBER] = HIDDEN
            if (heads[s, RIGHT] > 0) != negated:
                if n == begun.shape[1]:
                    begun = larger(begun)
                show(begun, n, l_time, e, first, rows)
                n += 1
            i += 1
            continue
        if not has_changed or heads[s, LEFT] == 0:
            continue
        if not shall_show:
            hidden_at[s] = t
            put_off[n_put_off] = s
            n_put_off += 1
            continue
        until = hidden_at[s]
        hidden_at[s] = SHOWN
        node = heads[s, LEFT]
        while node > 0:
            e = node - 1
            node = rows[e, FOLLOWING]
            end = rows[e, OF_END]
            if rows[e, NUMBER] != HIDDEN:
                if n_closed == closed.shape[1]:
                    closed = larger(closed)
                n_closed = hide(begun, closed, n_closed, min(until, end), e, first, rows)
            if end <= t:
                # Left in the chain, it would be met by every walk of this call.
                unlink(s, e, heads, rows, rest)
                rest[e, PRECEDING] = UNLINKED
            else:
                if n == begun.shape[1]:
                    begun = larger(begun)
                show(begun, n, t, e, first, rows)
                n += 1
    for x in range(n_put_off):
        s = put_off[x]
        until = hidden_at[s]
        hidden_at[s] = SHOWN
        node = heads[s, LEFT] if until != SHOWN else 0
        while node > 0:
            e = node - 1
            node = rows[e, FOLLOWING]
            if rows[e, NUMBER] != HIDDEN:
                if n_closed == closed.shape[1]:
                    closed = larger(closed)
                n_closed = hide(begun, closed, n_closed, min(until, rows[e, OF_END]), e, first, rows)
    for x in range(len(left_over)):
        e = left_over[x]
        if rest[e, PRECEDING] != UNLINKED:
            unlink(rest[e, OF_SLOT], e, heads, rows, rest)
        if rows[e, NUMBER] != HIDDEN:
            if n_closed == closed.shape[1]:
                closed = larger(closed)
            n_closed = hide(begun, closed, n_closed, rows[e, OF_END], e, first, rows)
    return n, begun, n_closed, closed
