"""Loops of the temporal joins: rows of both inputs in time order, each meeting the live rows of its key."""

from __future__ import annotations

from squill.engine.kernels.jit import inlined, kernel

__all__ = ["chain_rows", "emptied_slots", "join_edges", "join_intervals"]

# Chains of rows by slot: heads[slot, side] and `following` hold numbers + 1, so that fresh zeros mean "none".
LEFT, RIGHT = 0, 1

# Where a call stopped because its output was full: the next row of each side, and the place in the chain that
# the row was meeting (PLACE = number + 1, BEFORE the one before it), BEGUN when it had started.
NEXT_LEFT, NEXT_RIGHT, PLACE, BEFORE, BEGUN = 0, 1, 2, 3, 4
CURSOR = 5


@inlined
def meet(t, end, s, place, side, heads, following, ends, cursor, n, out_sync, out_end, out_own, out_other):
    """Pair one row with the live rows of the other side; rows found dead leave the chain.

    Returns the number of pairs; the output is full when that is its size and the chain is not at its end.
    """
    if cursor[BEGUN] == 0:
        cursor[PLACE] = heads[s, side]
        cursor[BEFORE] = 0
        cursor[BEGUN] = 1
    node = cursor[PLACE]
    before = cursor[BEFORE]
    room = len(out_sync)
    while node > 0:
        other_end = ends[node - 1]
        after = following[node - 1]
        if other_end <= t:
            if before > 0:
                following[before - 1] = after
            else:
                heads[s, side] = after
        else:
            if n == room:
                break
            out_sync[n] = t
            out_end[n] = min(end, other_end)
            out_own[n] = place
            out_other[n] = node - 1
            n += 1
            before = node
        node = after
    cursor[PLACE] = node
    cursor[BEFORE] = before
    return n


@kernel
def join_intervals(
    l_sync, l_end, l_slot, l_first, l_kept, r_sync, r_end, r_slot, r_first, r_kept, heads,
    l_following, l_ends, r_following, r_ends, cursor, out_sync, out_end, out_left, out_right,
):  # fmt: skip
    """Pair rows whose lifetimes overlap; both inputs are in order and their ends are known.

    Row i of the left is at place ``l_first + i`` of its side's arrays. A row is put into its chain when
    ``l_kept``, that is when rows of the other side may still follow. Returns the number of pairs; all rows are
    done when the cursor is at the end of both inputs.
    """
    n = 0
    n_left, n_right = len(l_sync), len(r_sync)
    room = len(out_sync)
    while cursor[NEXT_LEFT] < n_left or cursor[NEXT_RIGHT] < n_right:
        i, j = cursor[NEXT_LEFT], cursor[NEXT_RIGHT]
        if j >= n_right or (i < n_left and l_sync[i] <= r_sync[j]):
            s, place = l_slot[i], l_first + i
            n = meet(
                l_sync[i], l_end[i], s, place, RIGHT, heads, r_following, r_ends, cursor, n, out_sync, out_end,
                out_left, out_right,
            )  # fmt: skip
            if n == room and cursor[PLACE] > 0:
                return n
            if l_kept:
                l_following[place] = heads[s, LEFT]
                heads[s, LEFT] = place + 1
            cursor[NEXT_LEFT] = i + 1
        else:
            s, place = r_slot[j], r_first + j
            n = meet(
                r_sync[j], r_end[j], s, place, LEFT, heads, l_following, l_ends, cursor, n, out_sync, out_end,
                out_right, out_left,
            )  # fmt: skip
            if n == room and cursor[PLACE] > 0:
                return n
            if r_kept:
                r_following[place] = heads[s, RIGHT]
                heads[s, RIGHT] = place + 1
            cursor[NEXT_RIGHT] = j + 1
        cursor[BEGUN] = 0
    return n


@kernel
def chain_rows(slot, side, heads, following):
    """Chain all rows of one side anew, the last first."""
    for s in range(len(heads)):
        heads[s, side] = 0
    for i in range(len(slot)):
        following[i] = heads[slot[i], side]
        heads[slot[i], side] = i + 1


@kernel
def emptied_slots(slot, heads, out):
    """Write, each once, the slots among these that have no row on either side; returns their number."""
    n = 0
    for i in range(len(slot)):
        s = slot[i]
        if heads[s, LEFT] == 0 and heads[s, RIGHT] == 0:
            heads[s, LEFT] = -1
            out[n] = s
            n += 1
    for i in range(n):
        heads[out[i], LEFT] = 0
    return n


@inlined
def link(s, side, entry, heads, following, preceding):
    first = heads[s, side]
    following[entry] = first
    preceding[entry] = 0
    if first > 0:
        preceding[first - 1] = entry + 1
    heads[s, side] = entry + 1


@inlined
def unlink(s, side, entry, heads, following, preceding):
    after, before = following[entry], preceding[entry]
    if before > 0:
        following[before - 1] = after
    else:
        heads[s, side] = after
    if after > 0:
        preceding[after - 1] = before


@kernel
def join_edges(
    time, side, entry, is_start, slot, heads, l_following, l_preceding, l_start, r_following, r_preceding, r_start,
    cursor, out_sync, out_other, out_left, out_right,
):  # fmt: skip
    """Pair rows that begin and end by edges: changes come in time order, ends before starts in an instant.

    A start meets the live rows of the other side, each pair begins; an end leaves first, then ends its pairs.
    Returns the number of edges; all changes are done when the cursor is at their end.
    """
    n = 0
    room = len(out_sync)
    while cursor[NEXT_LEFT] < len(time):
        i = cursor[NEXT_LEFT]
        t, e, s = time[i], entry[i], slot[i]
        from_left = side[i] == LEFT
        if cursor[BEGUN] == 0:
            cursor[BEGUN] = 1
            if not is_start[i]:
                if from_left:
                    unlink(s, LEFT, e, heads, l_following, l_preceding)
                else:
                    unlink(s, RIGHT, e, heads, r_following, r_preceding)
            cursor[PLACE] = heads[s, RIGHT] if from_left else heads[s, LEFT]
        node = cursor[PLACE]
        while node > 0 and n < room:
            left, right = (e, node - 1) if from_left else (node - 1, e)
            out_sync[n] = t
            out_other[n] = 2**63 - 1 if is_start[i] else max(l_start[left], r_start[right])
            out_left[n] = left
            out_right[n] = right
            n += 1
            node = r_following[node - 1] if from_left else l_following[node - 1]
        cursor[PLACE] = node
        if node > 0:
            return n
        if is_start[i]:
            if from_left:
                link(s, LEFT, e, heads, l_following, l_preceding)
            else:
                link(s, RIGHT, e, heads, r_following, r_preceding)
        cursor[BEGUN] = 0
        cursor[NEXT_LEFT] = i + 1
    return n
