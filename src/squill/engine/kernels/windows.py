"""Loops of the windows that depend on other events: count windows and sessions."""

from __future__ import annotations

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.schedule import heap_pop, heap_push

__all__ = ["count_windows", "session_windows"]

INFINITY = 2**63 - 1
NONE = -1

# Both keep the open events of a slot as a chain of entries, oldest first. Entries are numbered + 1 in the
# slots, so that fresh zeros mean "none".
FIRST, LAST, COUNT = 0, 1, 2
COUNT_SLOT = 3

# A session beside its chain: its end so far, the last event, the forced end, whether it is open, whether it
# was cut while active, and the one valid time in the heap (WAKE).
END, LAST_EVENT, FORCED, IS_OPEN, WAS_CUT, WAKE = 2, 3, 4, 5, 6, 7
SESSION_SLOT = 8
NEXT_ROW, HEAP, CLOSING = 0, 1, 2


@inlined
def append_entry(slots, s, following, entry):
    following[entry] = NONE
    if slots[s, FIRST] == 0:
        slots[s, FIRST] = entry + 1
    else:
        following[slots[s, LAST] - 1] = entry
    slots[s, LAST] = entry + 1


@inlined
def take_first(slots, s, following):
    entry = slots[s, FIRST] - 1
    slots[s, FIRST] = following[entry] + 1
    return entry


@kernel
def count_windows(
    sync, slot, entries, n_alive, slots, start, following, is_gone, out_sync, out_other, out_entry, freed
):
    """Every event pushes out the event of its key that came `n_alive` before it.

    Rows come in whole instants, in order. An event pushed out at its own instant leaves no trace. Returns
    (rows written, entries freed).
    """
    n_out = 0
    n_freed = 0
    low = 0
    n = len(sync)
    for i in range(n):
        t = sync[i]
        s = slot[i]
        append_entry(slots, s, following, entries[i])
        is_gone[entries[i]] = 0
        slots[s, COUNT] += 1
        if slots[s, COUNT] > n_alive:
            gone = take_first(slots, s, following)
            slots[s, COUNT] -= 1
            is_gone[gone] = 1
            freed[n_freed] = gone
            n_freed += 1
            if start[gone] < t:
                out_sync[n_out] = t
                out_other[n_out] = start[gone]
                out_entry[n_out] = gone
                n_out += 1
        if i + 1 == n or sync[i + 1] != t:
            for k in range(low, i + 1):
                if is_gone[entries[k]] == 0:
                    out_sync[n_out] = t
                    out_other[n_out] = INFINITY
                    out_entry[n_out] = entries[k]
                    n_out += 1
            low = i + 1
    return n_out, n_freed


@inlined
def wake_at(slots, s, t, heap_end, heap_slot, state):
    """Make t the slot's valid time in the heap; an entry it had before becomes stale."""
    heap_push(heap_end, heap_slot, state[HEAP], t, s)
    state[HEAP] += 1
    slots[s, WAKE] = t


@inlined
def later(t, by):
    """Return t + by for by ≥ 0; infinity where that is beyond the range of times."""
    return INFINITY if t > 0 and by > INFINITY - t else t + by


@inlined
def forced_end(t, limit, slots, s, timeout):
    """The grid point at which a session that begins at t is cut; one beyond the end of time cuts nothing."""
    if limit == 0:
        return INFINITY
    if slots[s, WAS_CUT] == 1 and t < slots[s, LAST_EVENT] + timeout:
        return later(t, limit - t % limit)
    return later(later(t, (-t) % limit), limit)


@kernel
def session_windows(
    sync, slot, entries, bound, timeout, limit, is_final, state, slots, start, following, heap_end, heap_slot,
    out_sync, out_other, out_entry, freed, emptied,
):  # fmt: skip
    """Open, prolong and close sessions in time order; sessions that end up to `bound` are closed.

    Stops when the output is full and goes on when called again. Returns (done, rows written, entries
    freed, slots emptied).
    """
    n_out = 0
    n_freed = 0
    n_emptied = 0
    capacity = len(out_sync)
    i = state[NEXT_ROW]
    n = len(sync)
    last = bound
    if n > 0 and sync[n - 1] > last:
        last = sync[n - 1]
    done = False
    while n_out < capacity and n_emptied < capacity:
        s = state[CLOSING]
        if s != NONE:
            entry = take_first(slots, s, following)
            end = slots[s, END]
            out_sync[n_out] = end
            out_other[n_out] = end + 1 if is_final else start[entry]
            out_entry[n_out] = entry
            n_out += 1
            freed[n_freed] = entry
            n_freed += 1
            if slots[s, FIRST] == 0:
                state[CLOSING] = NONE
                slots[s, IS_OPEN] = 0
                if end < slots[s, LAST_EVENT] + timeout:
                    slots[s, WAS_CUT] = 1
                    wake_at(slots, s, slots[s, LAST_EVENT] + timeout, heap_end, heap_slot, state)
                else:
                    slots[s, WAS_CUT] = 0
                    emptied[n_emptied] = s
                    n_emptied += 1
            continue
        next_start = sync[i] if i < n else INFINITY
        next_end = heap_end[0] if state[HEAP] > 0 else INFINITY
        if next_end <= next_start and next_end <= last and state[HEAP] > 0:
            s = heap_slot[0]
            heap_pop(heap_end, heap_slot, state[HEAP])
            state[HEAP] -= 1
            if slots[s, WAKE] == next_end:
                if slots[s, IS_OPEN] == 0:
                    slots[s, WAS_CUT] = 0
                    slots[s, WAKE] = INFINITY
                    emptied[n_emptied] = s
                    n_emptied += 1
                elif slots[s, END] > next_end:
                    wake_at(slots, s, slots[s, END], heap_end, heap_slot, state)
                else:
                    slots[s, WAKE] = INFINITY
                    state[CLOSING] = s
            continue
        if i == n:
            done = True
            break
        t = next_start
        s = slot[i]
        if slots[s, IS_OPEN] == 0:
            slots[s, FORCED] = forced_end(t, limit, slots, s, timeout)
            has_entry = slots[s, WAS_CUT] == 1
            slots[s, WAS_CUT] = 0
            slots[s, IS_OPEN] = 1
            slots[s, END] = min(t + timeout, slots[s, FORCED])
            if not has_entry or slots[s, END] < slots[s, WAKE]:
                wake_at(slots, s, slots[s, END], heap_end, heap_slot, state)
        slots[s, LAST_EVENT] = t
        slots[s, END] = min(t + timeout, slots[s, FORCED])
        append_entry(slots, s, following, entries[i])
        if not is_final:
            out_sync[n_out] = t
            out_other[n_out] = INFINITY
            out_entry[n_out] = entries[i]
            n_out += 1
        i += 1
    state[NEXT_ROW] = i
    return done, n_out, n_freed, n_emptied
