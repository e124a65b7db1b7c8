"""Loops that bring words into another order."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from squill.engine.kernels.jit import kernel

__all__ = ["rows_by_place", "words_at", "words_to"]

Array = npt.NDArray[Any]


@kernel
def words_at(values: Array, rows: Array, out: Array) -> None:
    """Write the given rows one after the other; the caller knows that they are there."""
    for i in range(len(rows)):
        out[i] = values[rows[i]]


@kernel
def words_to(values: Array, places: Array, out: Array) -> None:
    """Write each value to its place; the caller knows that all are there.

    Values are read in their order and written to as many ends as there are stretches of places. Asked for by row
    number they are read once for every stretch: 1.0 against 1.1 ns a value with two of them, 1.1 against 2.4 with 16.
    """
    for i in range(len(places)):
        out[places[i]] = values[i]


@kernel
def rows_by_place(places: Array, rows: Array) -> None:
    """Write which row stands at each place."""
    for i in range(len(places)):
        rows[places[i]] = i
