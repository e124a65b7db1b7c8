"""Loops of the AS OF join: which right rows share key and instant, and the latest right row before each left one."""

from __future__ import annotations

from squill.engine.kernels.jit import kernel

__all__ = ["mark_ties", "match_latest"]

NONE = -1
EARLIEST = -(2**63)

# The latest right row of a slot: its place in the store + 1, so that fresh zeros mean "none", and its start.
PLACE, START = 0, 1
LATEST = 2


@kernel
def mark_ties(sync, slot, last_row, group):
    """Give rows that share slot and sync with another the number of the first of them in `group`, others −1.

    ``last_row`` by slot may hold anything: an entry counts only if the row it names is of the slot. Returns how
    many rows are tied.
    """
    tied = 0
    for i in range(len(sync)):
        s = slot[i]
        p = last_row[s]
        group[i] = NONE
        if 0 <= p < i and slot[p] == s and sync[p] == sync[i]:
            if group[p] == NONE:
                group[p] = p
                tied += 1
            group[i] = group[p]
            tied += 1
        last_row[s] = i
    return tied


@kernel
def match_latest(right_sync, right_slot, first_place, left_sync, left_slot, tolerance, latest, match):
    """Read both sides in time order; match[i] is the place of the latest right row for left row i, or −1.

    Right rows lie in the store from `first_place` on. A right row counts from its own instant on. A slot of −1
    matches nothing; so does, with a tolerance ≥ 0, a row that began too long ago.
    """
    j = 0
    m = len(right_sync)
    for i in range(len(left_sync)):
        t = left_sync[i]
        while j < m and right_sync[j] <= t:
            latest[right_slot[j], PLACE] = first_place + j + 1
            latest[right_slot[j], START] = right_sync[j]
            j += 1
        place = NONE
        s = left_slot[i]
        if s != NONE:
            place = latest[s, PLACE] - 1
            if tolerance >= 0 and place != NONE:
                # t − tolerance may lie below what 64 bits hold.
                oldest = t - tolerance if t >= EARLIEST + tolerance else EARLIEST
                if latest[s, START] < oldest:
                    place = NONE
        match[i] = place
    while j < m:
        latest[right_slot[j], PLACE] = first_place + j + 1
        latest[right_slot[j], START] = right_sync[j]
        j += 1
