"""Rows that never change: written once, known again by where they lie in memory, and referred to.

Batches that wait in queues are cut from the front as time goes on. A slice lies inside the memory of the rows
that it was cut from, so it is found there and need not be written again. That memory is kept until the next
checkpoint has found it gone, or its address could mean something else by then.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.columns import fixed_width, valid_of, values_of

__all__ = ["Known", "Place", "place_of"]

Array = npt.NDArray[Any]
_NEWEST = pl.CompatLevel.newest()
VIEW_BYTES = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows lie: `width` bytes per row from `address`; `memory` keeps it from being used anew."""

    address: int
    width: int
    rows: int
    kind: str
    valid: Array | None
    memory: object


def place_of(column: pl.Series | Array) -> Place | None:
    """Return where the rows lie; None for types that are not one run of memory."""
    if isinstance(column, np.ndarray):
        return Place(column.ctypes.data, column.itemsize, len(column), column.dtype.str, None, column)
    dtype = column.dtype
    valid = valid_of(column) if column.null_count() else None
    if fixed_width(dtype) and not isinstance(dtype, pl.Boolean):
        values = values_of(column)
        return Place(values.ctypes.data, values.itemsize, len(values), str(dtype), valid, values)
    if isinstance(dtype, (pl.String, pl.Binary)) and column.n_chunks() == 1:
        arrow = column.to_arrow(compat_level=_NEWEST)
        views = arrow.buffers()[1]
        if views is not None:
            at = views.address + VIEW_BYTES * arrow.offset
            return Place(at, VIEW_BYTES, len(arrow), str(dtype), valid, arrow)
    return None


class Known:
    """The chunks that are written, by place."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._starts: list[tuple[int, int]] = []

    def add(self, number: int, place: Place) -> None:
        self._places[number] = place
        insort(self._starts, (place.address, number))

    def find(self, place: Place) -> tuple[int, int] | None:
        """Return the chunk that these rows are part of, and the first row in it."""
        at = bisect_right(self._starts, (place.address, 1 << 62)) - 1
        if at < 0:
            return None
        number = self._starts[at][1]
        known = self._places[number]
        first, odd = divmod(place.address - known.address, known.width)
        if known.kind != place.kind or odd or first + place.rows > known.rows:
            return None
        return (number, first) if _same_nulls(known.valid, place.valid, first, place.rows) else None

    def keep(self, numbers: set[int]) -> None:
        """Forget all but these."""
        self._places = {number: place for number, place in self._places.items() if number in numbers}
        self._starts = sorted((place.address, number) for number, place in self._places.items())


def _same_nulls(known: Array | None, given: Array | None, first: int, rows: int) -> bool:
    if known is None:
        return given is None
    part = known[first : first + rows]
    return bool(part.all()) if given is None else np.array_equal(part, given)
