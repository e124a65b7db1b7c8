"""Fold: how many different values a slot has, from how many rows hold each (slot, value) pair."""

from __future__ import annotations

from typing import Any

from squill.engine.kernels.jit import kernel

__all__ = ["fold_distinct"]

Array = Any


@kernel
def fold_distinct(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, pairs: Array, valid: Array, references: Array, counts: Array,
    released: Array, out: Array,
) -> int:  # fmt: skip
    """Write the number of pairs that rows hold; returns how many pairs lost their last row."""
    n_released = 0
    d = 0
    c = 0
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            row = d_row[d]
            if valid[row]:
                pair = pairs[row]
                before = references[pair]
                references[pair] = before + d_sign[d]
                if before == 0:
                    counts[d_slot[d]] += 1
                elif before + d_sign[d] == 0:
                    counts[d_slot[d]] -= 1
                    released[n_released] = pair
                    n_released += 1
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                out[c] = counts[c_slot[c]]
                c += 1
    return n_released
