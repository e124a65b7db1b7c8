"""Schedules: from rows to instants, deltas and cells.

An *instant* is a time at which some alive set changes. A *delta* is one row entering (+1) or leaving (−1)
the alive set of its slot. A *cell* is one slot at one instant: the place of one output row. All three come
out in time order; the folds turn the deltas into one value per cell.

Shared layout (one row per thing, written from the front):

* deltas: ``d_slot``, ``d_sign``, ``d_row`` (where the row's values lie in the row store)
* instants: ``i_delta`` and ``i_cell``, the ends of the instant's deltas and cells
* cells: ``c_slot``, ``c_time``, ``c_alive`` (how many rows are alive once the instant is over)

The last instant may go on in the next call: it stays *open*, its cells stay at the front of the cell
arrays, and only instants that are over are counted. So a call may stop anywhere: when the delta arrays are
full it returns, and goes on where it was when it is called again.

``state`` holds, between calls: whether an instant is open, its time, its serial number (with counts: the last one
given, and the one of the instant), the number of its cells, the heads of the queues. ``slots`` holds what is
known of each slot in one cache line: how many rows are alive, in which instant it last got a cell, and the
output row that is open (see `kernels.cells`).
"""

from __future__ import annotations

from typing import Any

from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import prefetch_word

__all__ = [
    "schedule_counts", "schedule_endless", "schedule_fifo", "schedule_general", "schedule_passing_tally",
    "schedule_tally",
]  # fmt: skip

Array = Any

OPEN, TIME, SERIAL, CELLS, NEXT_ROW, HEAD, HEAP, INSTANT = 0, 1, 2, 3, 4, 5, 6, 7
STATE_SIZE = 8

ALIVE, STAMP, OPEN_ROW, OPEN_START = 0, 1, 2, 3
SLOT_SIZE = 4
INFINITY = 2**63 - 1
AHEAD = 16
"""How many rows ahead a slot's cache line is fetched: the slots of the keys do not fit the inner caches."""


@inlined
def close_instant(state, slots, c_slot, c_alive, n_instants, n_deltas, i_delta, i_cell):
    """End the open instant: its deltas and cells so far are all there are."""
    first = i_cell[u(n_instants - 1)] if n_instants > 0 else 0
    for c in range(first, state[CELLS]):
        c_alive[u(c)] = slots[u(c_slot[u(c)]), ALIVE]
    i_delta[u(n_instants)] = n_deltas
    i_cell[u(n_instants)] = state[CELLS]
    state[OPEN] = 0
    return n_instants + 1


@inlined
def open_instant(state, t):
    state[OPEN] = 1
    state[TIME] = t
    state[SERIAL] += 1


@inlined
def touch(state, slots, slot, c_slot, c_time):
    """Give the slot a cell in the open instant unless it has one."""
    if slots[u(slot), STAMP] != state[SERIAL]:
        slots[u(slot), STAMP] = state[SERIAL]
        c = state[CELLS]
        c_slot[u(c)] = slot
        c_time[u(c)] = state[TIME]
        state[CELLS] = c + 1


@inlined
def end_of_instant(sync, first, stop):
    """Return where the rows that start with row `first` end, `stop` at the latest."""
    if sync[u(stop - 1)] == sync[u(first)]:
        return stop
    end = first + 1
    while sync[u(end)] == sync[u(first)]:
        end += 1
    return end


@kernel
def schedule_tally(t, slot, count, bound, state, slots, i_delta, i_cell, c_slot, c_time, c_alive):
    """Rows of one time that never end and are only counted, so many of each slot. Returns the number of instants."""
    n_instants = 0
    if state[OPEN] == 0 or t != state[TIME]:
        if state[OPEN] == 1:
            n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, 0, i_delta, i_cell)
        open_instant(state, t)
    for k in range(len(slot)):
        touch(state, slots, slot[u(k)], c_slot, c_time)
        slots[u(slot[u(k)]), ALIVE] += count[u(k)]
    if t < bound:
        n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, 0, i_delta, i_cell)
    return n_instants


@kernel
def schedule_passing_tally(
    t, end, slot, count, q_end, q_slot, q_count, q_tail, bound, capacity,
    state, slots, i_delta, i_cell, c_slot, c_time, c_alive,
):  # fmt: skip
    """Rows of one time that end together and are only counted, so many of each slot; nothing is due before them.

    They go to the queue of `schedule_counts`, which has room for them. At most `capacity` cells are added. Returns
    (done, tail of the queue, instants).
    """
    n_instants = 0
    if state[OPEN] == 0 or t != state[TIME]:
        if state[OPEN] == 1:
            n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, 0, i_delta, i_cell)
        open_instant(state, t)
        state[INSTANT] = state[SERIAL]
    limit = state[CELLS] + capacity
    i = state[NEXT_ROW]
    head = state[HEAD]
    while i < len(slot) and state[CELLS] < limit:
        touch_counted(state, slots, slot[u(i)], c_slot, c_time)
        slots[u(slot[u(i)]), ALIVE] += count[u(i)]
        q_end[u(q_tail)] = end
        q_slot[u(q_tail)] = slot[u(i)]
        q_count[u(q_tail)] = count[u(i)]
        q_tail += 1
        i += 1
    while head < q_tail and q_end[u(head)] == t and state[CELLS] < limit:
        touch_counted(state, slots, q_slot[u(head)], c_slot, c_time)
        slots[u(q_slot[u(head)]), ALIVE] -= q_count[u(head)]
        head += 1
    state[NEXT_ROW] = i
    state[HEAD] = head
    done = i == len(slot) and not (head < q_tail and q_end[u(head)] == t)
    if done and t < bound:
        n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, 0, i_delta, i_cell)
    return done, q_tail, n_instants


@inlined
def touch_counted(state, slots, slot, c_slot, c_time):
    """As `touch`, where an instant's stamps are its own and all later ones."""
    if slots[u(slot), STAMP] < state[INSTANT]:
        slots[u(slot), STAMP] = state[INSTANT]
        c = state[CELLS]
        c_slot[u(c)] = slot
        c_time[u(c)] = state[TIME]
        state[CELLS] = c + 1


@kernel
def schedule_endless(
    sync, slot, bound, wants_deltas, state, slots, d_slot, d_sign, d_row, i_delta, i_cell, c_slot, c_time, c_alive
):  # fmt: skip
    """Rows that never end. Returns (done, deltas, instants)."""
    n_deltas = 0
    n_instants = 0
    capacity = len(d_slot)
    i = state[NEXT_ROW]
    n = len(sync)
    cells = state[CELLS]
    words = slots.reshape(-1)
    while i < n and n_deltas < capacity:
        t = sync[u(i)]
        if state[OPEN] == 0 or t != state[TIME]:
            if state[OPEN] == 1:
                state[CELLS] = cells
                n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, n_deltas, i_delta, i_cell)
            open_instant(state, t)
        serial = state[SERIAL]
        end = end_of_instant(sync, i, min(n, i + capacity - n_deltas))
        if wants_deltas:
            for k in range(i, end):
                d_slot[u(n_deltas + k - i)] = slot[u(k)]
                d_sign[u(n_deltas + k - i)] = 1
                d_row[u(n_deltas + k - i)] = k
        for k in range(i, end):
            prefetch_word(words, SLOT_SIZE * slot[u(min(k + AHEAD, n - 1))])
            s = u(slot[u(k)])
            if slots[s, STAMP] != serial:
                slots[s, STAMP] = serial
                c_slot[u(cells)] = slot[u(k)]
                c_time[u(cells)] = t
                cells += 1
            slots[s, ALIVE] += 1
        n_deltas += end - i
        i = end
    state[CELLS] = cells
    state[NEXT_ROW] = i
    done = i == n
    if done and state[OPEN] == 1 and state[TIME] < bound:
        n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, n_deltas, i_delta, i_cell)
    return done, n_deltas, n_instants


@kernel
def schedule_fifo(
    sync, slot, base, q_end, q_slot, q_tail, bound,
    state, slots, d_slot, d_sign, d_row, i_delta, i_cell, c_slot, c_time, c_alive,
):  # fmt: skip
    """Rows that end in the order in which they start.

    The rows' ends and slots stand in the queue already (row i at base + i). Ends below `bound` leave, and
    ends at the time of the last row. Returns (done, deltas, instants).
    """
    n_deltas = 0
    n_instants = 0
    capacity = len(d_sign)
    i = state[NEXT_ROW]
    n = len(sync)
    head = state[HEAD]
    cells = state[CELLS]
    serial = state[SERIAL]
    is_open = state[OPEN] == 1
    now = state[TIME]
    last = bound - 1
    if n > 0 and sync[u(n - 1)] > last:
        last = sync[u(n - 1)]
    words = slots.reshape(-1)
    while n_deltas < capacity:
        next_start = sync[u(i)] if i < n else INFINITY
        next_end = q_end[u(head)] if head < q_tail else INFINITY
        t = min(next_start, next_end)
        if t > last or t == INFINITY:
            break
        if not is_open or t != now:
            if is_open:
                first = i_cell[u(n_instants - 1)] if n_instants > 0 else 0
                for c in range(first, cells):
                    c_alive[u(c)] = slots[u(c_slot[u(c)]), ALIVE]
                i_delta[u(n_instants)] = n_deltas
                i_cell[u(n_instants)] = cells
                n_instants += 1
            is_open = True
            now = t
            serial += 1
        while i < n and sync[u(i)] == t and n_deltas < capacity:
            if i + AHEAD < n:
                prefetch_word(words, SLOT_SIZE * slot[u(i + AHEAD)])
            s = slot[u(i)]
            if slots[u(s), STAMP] != serial:
                slots[u(s), STAMP] = serial
                c_slot[u(cells)] = s
                c_time[u(cells)] = t
                cells += 1
            slots[u(s), ALIVE] += 1
            d_slot[u(n_deltas)] = s
            d_sign[u(n_deltas)] = 1
            d_row[u(n_deltas)] = base + i
            n_deltas += 1
            i += 1
        while head < q_tail and q_end[u(head)] == t and n_deltas < capacity:
            if head + AHEAD < q_tail:
                prefetch_word(words, SLOT_SIZE * q_slot[u(head + AHEAD)])
            s = q_slot[u(head)]
            if slots[u(s), STAMP] != serial:
                slots[u(s), STAMP] = serial
                c_slot[u(cells)] = s
                c_time[u(cells)] = t
                cells += 1
            slots[u(s), ALIVE] -= 1
            d_slot[u(n_deltas)] = s
            d_sign[u(n_deltas)] = -1
            d_row[u(n_deltas)] = head
            n_deltas += 1
            head += 1
    done = n_deltas < capacity
    state[OPEN] = 1 if is_open else 0
    state[TIME] = now
    state[SERIAL] = serial
    state[CELLS] = cells
    state[NEXT_ROW] = i
    state[HEAD] = head
    if done and is_open and now < bound:
        n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, n_deltas, i_delta, i_cell)
    return done, n_deltas, n_instants


@kernel
def schedule_counts(
    sync, other, duration, slot, q_end, q_slot, q_count, q_tail, bound, capacity,
    state, slots, i_delta, i_cell, c_slot, c_time, c_alive,
):  # fmt: skip
    """Rows that end in the order in which they start, when only their number matters: there are no deltas.

    Rows end `duration` after they start, or, when it is 0, at `other`. The queue has room for one entry per row,
    and gets one for each slot in each run of rows with one start: how many they are. At most `capacity` cells
    are added. Returns (done, tail of the queue, instants).
    """
    n_instants = 0
    i = state[NEXT_ROW]
    n = len(sync)
    head = state[HEAD]
    cells = state[CELLS]
    limit = cells + capacity
    serial = state[SERIAL]
    instant = state[INSTANT]
    is_open = state[OPEN] == 1
    now = state[TIME]
    last = bound - 1
    if n > 0 and sync[u(n - 1)] > last:
        last = sync[u(n - 1)]
    words = slots.reshape(-1)
    done = False
    while cells < limit:
        next_start = sync[u(i)] if i < n else INFINITY
        next_end = q_end[u(head)] if head < q_tail else INFINITY
        t = min(next_start, next_end)
        if t > last or t == INFINITY:
            done = True
            break
        if not is_open or t != now:
            if is_open:
                first = i_cell[u(n_instants - 1)] if n_instants > 0 else 0
                for c in range(first, cells):
                    c_alive[u(c)] = slots[u(c_slot[u(c)]), ALIVE]
                i_delta[u(n_instants)] = 0
                i_cell[u(n_instants)] = cells
                n_instants += 1
            is_open = True
            now = t
            serial += 1
            instant = serial
        if next_start == t:
            # A run has a number of its own: a slot's stamp tells whether it has a cell in the instant, and
            # whether it has an entry of the run. An entry holds minus the slot's rows before the run until it is over.
            serial += 1
            run = q_tail
            end = t + duration if duration != 0 else other[u(i)]
            while i < n and sync[u(i)] == t:
                if i + AHEAD < n:
                    prefetch_word(words, SLOT_SIZE * slot[u(i + AHEAD)])
                s = slot[u(i)]
                stamp = slots[u(s), STAMP]
                if stamp != serial:
                    if stamp < instant:
                        if cells == limit:
                            break
                        c_slot[u(cells)] = s
                        c_time[u(cells)] = t
                        cells += 1
                    slots[u(s), STAMP] = serial
                    q_end[u(q_tail)] = end
                    q_slot[u(q_tail)] = s
                    q_count[u(q_tail)] = -slots[u(s), ALIVE]
                    q_tail += 1
                slots[u(s), ALIVE] += 1
                i += 1
            for entry in range(run, q_tail):
                q_count[u(entry)] += slots[u(q_slot[u(entry)]), ALIVE]
        while head < q_tail and q_end[u(head)] == t:
            if head + AHEAD < q_tail:
                prefetch_word(words, SLOT_SIZE * q_slot[u(head + AHEAD)])
            s = q_slot[u(head)]
            if slots[u(s), STAMP] < instant:
                if cells == limit:
                    break
                slots[u(s), STAMP] = instant
                c_slot[u(cells)] = s
                c_time[u(cells)] = t
                cells += 1
            slots[u(s), ALIVE] -= q_count[u(head)]
            head += 1
    state[OPEN] = 1 if is_open else 0
    state[TIME] = now
    state[SERIAL] = serial
    state[INSTANT] = instant
    state[CELLS] = cells
    state[NEXT_ROW] = i
    state[HEAD] = head
    if done and is_open and now < bound:
        n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, 0, i_delta, i_cell)
    return done, q_tail, n_instants


@inlined
def heap_push(heap_end, heap_row, size, end, row):
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if heap_end[parent] <= end:
            break
        heap_end[child] = heap_end[parent]
        heap_row[child] = heap_row[parent]
        child = parent
    heap_end[child] = end
    heap_row[child] = row


@inlined
def heap_pop(heap_end, heap_row, size):
    """Take the root out of a heap of `size`; the caller has read it."""
    last = size - 1
    end = heap_end[last]
    row = heap_row[last]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= last:
            break
        if child + 1 < last and heap_end[child + 1] < heap_end[child]:
            child += 1
        if heap_end[child] >= end:
            break
        heap_end[parent] = heap_end[child]
        heap_row[parent] = heap_row[child]
        parent = child
    heap_end[parent] = end
    heap_row[parent] = row


@kernel
def schedule_general(
    sync, other, rows, heap_end, heap_row, row_slot, freed, bound,
    state, slots, d_slot, d_sign, d_row, i_delta, i_cell, c_slot, c_time, c_alive,
):  # fmt: skip
    """Intervals with any ends, start edges and end edges.

    Row i has its values and its slot at rows[i] of the row store. Intervals wait for their end in a heap;
    an end edge carries its own values. Rows of the store that no delta will need any more are written to
    `freed`. Returns (done, deltas, instants, freed rows).
    """
    n_deltas = 0
    n_instants = 0
    n_freed = 0
    capacity = len(d_slot)
    i = state[NEXT_ROW]
    n = len(sync)
    last = bound - 1
    if n > 0 and sync[n - 1] > last:
        last = sync[n - 1]
    while n_deltas < capacity:
        size = state[HEAP]
        next_start = sync[i] if i < n else INFINITY
        next_end = heap_end[0] if size > 0 else INFINITY
        t = min(next_start, next_end)
        if t > last or t == INFINITY:
            break
        if state[OPEN] == 0 or t != state[TIME]:
            if state[OPEN] == 1:
                n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, n_deltas, i_delta, i_cell)
            open_instant(state, t)
        if next_end <= next_start:
            row = heap_row[0]
            heap_pop(heap_end, heap_row, size)
            state[HEAP] = size - 1
            sign = -1
            freed[n_freed] = row
            n_freed += 1
        else:
            row = rows[i]
            end = other[i]
            sign = 1
            if end < t:
                sign = -1
            if end < t or end == INFINITY:
                freed[n_freed] = row
                n_freed += 1
            else:
                heap_push(heap_end, heap_row, size, end, row)
                state[HEAP] = size + 1
            i += 1
        s = row_slot[row]
        touch(state, slots, s, c_slot, c_time)
        slots[s, ALIVE] += sign
        d_slot[n_deltas] = s
        d_sign[n_deltas] = sign
        d_row[n_deltas] = row
        n_deltas += 1
    done = n_deltas < capacity
    state[NEXT_ROW] = i
    if done and state[OPEN] == 1 and state[TIME] < bound:
        n_instants = close_instant(state, slots, c_slot, c_alive, n_instants, n_deltas, i_delta, i_cell)
    return done, n_deltas, n_instants, n_freed
