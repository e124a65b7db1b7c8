"""From finished cells to output rows: which cells become rows, and which earlier rows they end."""

from __future__ import annotations

from typing import Any

from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import kernel
from squill.engine.kernels.memory import prefetch_word
from squill.engine.kernels.schedule import AHEAD, ALIVE, OPEN_ROW, OPEN_START, SLOT_SIZE, STAMP

__all__ = [
    "cells_to_edges",
    "cells_to_numbered_rows",
    "cells_to_presence",
    "cells_to_starts",
    "empty_slots",
    "still_empty",
]

Array = Any
EMPTIED, RELEASED = -1, -3
"""Stamps of slots without a cell: found empty, and given back."""


@kernel
def cells_to_starts(c_alive, n, rows):
    """Write the cells that have a row; returns how many."""
    n_rows = 0
    for c in range(n):
        if c_alive[u(c)] > 0:
            rows[u(n_rows)] = c
            n_rows += 1
    return n_rows


@kernel
def cells_to_numbered_rows(c_slot, c_time, c_alive, n, slots, next_id, rows, ended, ends):
    """Write the cells that have a row, and (number, time) for the rows that end.

    A slot's open row is kept as its number + 1; 0 is none. Returns (rows, ended rows).
    """
    n_rows = 0
    n_ended = 0
    words = slots.reshape(-1)
    for c in range(n):
        if c + AHEAD < n:
            prefetch_word(words, SLOT_SIZE * c_slot[u(c + AHEAD)])
        slot = c_slot[u(c)]
        is_open = slots[u(slot), OPEN_ROW]
        if is_open != 0:
            ended[u(n_ended)] = is_open - 1
            ends[u(n_ended)] = c_time[u(c)]
            n_ended += 1
        if c_alive[u(c)] > 0:
            slots[u(slot), OPEN_ROW] = next_id + n_rows + 1
            rows[u(n_rows)] = c
            n_rows += 1
        else:
            slots[u(slot), OPEN_ROW] = 0
    return n_rows, n_ended


@kernel
def cells_to_edges(c_slot, c_time, c_alive, n, slots, held, sync, other, source, row_slot):
    """Write end edges and start edges in time order; `source` says which held row each one shows.

    The rows of this call are held behind the `held` ones that are there, at held + cell. Returns how many.
    """
    n_rows = 0
    for c in range(n):
        slot = c_slot[u(c)]
        is_open = slots[u(slot), OPEN_ROW]
        if is_open != 0:
            sync[u(n_rows)] = c_time[u(c)]
            other[u(n_rows)] = slots[u(slot), OPEN_START]
            source[u(n_rows)] = is_open - 1
            row_slot[u(n_rows)] = slot
            n_rows += 1
        if c_alive[u(c)] > 0:
            slots[u(slot), OPEN_ROW] = held + c + 1
            slots[u(slot), OPEN_START] = c_time[u(c)]
            sync[u(n_rows)] = c_time[u(c)]
            other[u(n_rows)] = 2**63 - 1
            source[u(n_rows)] = held + c
            row_slot[u(n_rows)] = slot
            n_rows += 1
        else:
            slots[u(slot), OPEN_ROW] = 0
    return n_rows


@kernel
def empty_slots(c_slot, c_alive, n, slots, open_serial, out):
    """Write the slots that these cells left empty so far; returns how many."""
    n_out = 0
    words = slots.reshape(-1)
    for c in range(n):
        prefetch_word(words, SLOT_SIZE * c_slot[u(min(c + AHEAD, n - 1))])
        if c_alive[u(c)] == 0:
            slot = c_slot[u(c)]
            stamp = slots[u(slot), STAMP]
            if slots[u(slot), ALIVE] == 0 and not (stamp == EMPTIED or stamp >= open_serial):
                slots[u(slot), STAMP] = EMPTIED
                out[u(n_out)] = slot
                n_out += 1
    return n_out


@kernel
def cells_to_presence(c_slot, c_time, c_alive, n, slots, sync, other, row_slot):
    """Write a start edge where a slot comes alive and an end edge where it dies; returns how many."""
    n_rows = 0
    for c in range(n):
        slot = c_slot[u(c)]
        was_open = slots[u(slot), OPEN_ROW] != 0
        is_open = c_alive[u(c)] > 0
        if was_open != is_open:
            sync[u(n_rows)] = c_time[u(c)]
            other[u(n_rows)] = 2**63 - 1 if is_open else slots[u(slot), OPEN_START]
            row_slot[u(n_rows)] = slot
            n_rows += 1
            slots[u(slot), OPEN_ROW] = 1 if is_open else 0
            slots[u(slot), OPEN_START] = c_time[u(c)]
    return n_rows


@kernel
def still_empty(found, slots, out):
    """Write those of the slots found empty that no later row has touched, each once; returns how many."""
    n_out = 0
    for i in range(len(found)):
        if slots[u(found[u(i)]), STAMP] == EMPTIED:
            slots[u(found[u(i)]), STAMP] = RELEASED
            out[u(n_out)] = found[u(i)]
            n_out += 1
    return n_out
