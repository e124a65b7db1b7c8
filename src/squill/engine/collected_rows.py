"""Rows that are kept until the end, as few large batches.

Batches that are kept as they come hold the memory that operators have just written to, so that these must ask for more,
and the system clears it page by page. So from some rows on they are copied into large arrays, a *slab*, while the
caches have them, and their own memory serves the next batch: over 7 M rows in 160 batches there were 17,000 page
faults, and there are 2,000. Rows whose columns are not all plain words are kept as they come, and so are all that
follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch, Int64s, numbers_of
from squill.engine.buffers import trimmed
from squill.engine.columns import is_plain, series_from, values_of
from squill.engine.large_arrays import large_array

__all__ = ["CollectedRows"]

FEW_ROWS = 1 << 18
"""So many rows are kept as they come: a small answer is to cost no large array."""
SLAB_ROWS = 1 << 20
SLAB_BYTES = 64 << 20
"""What a slab takes at most: of many columns it has fewer rows."""
LEAST_BATCHES = 4
"""Where a slab would hold fewer batches than these, nothing is gained by it."""

Array = npt.NDArray[Any]


class CollectedRows:
    """Batches in the order in which they were added, neighbours in one where they could be put together.

    Examples
    --------
    >>> rows = CollectedRows()
    >>> for t in (1, 2):
    ...     rows.add(Batch(np.array([t]), 1, {"x": pl.Series("x", [t])}))
    >>> [batch.columns["x"].to_list() for batch in rows.batches]
    [[1], [2]]
    """

    def __init__(self, batches: list[Batch] | None = None) -> None:
        self._batches = [] if batches is None else batches
        self._rows = sum(map(len, self._batches))
        self._slab: _Slab | None = None
        self._keeps_slabs = True

    def __len__(self) -> int:
        """Return how many rows have been added, taken ones included."""
        return self._rows

    def add(self, batch: Batch) -> None:
        """Keep the rows, without their hashes."""
        self._rows += len(batch)
        if self._rows > FEW_ROWS and self._keeps_slabs:
            self._put_into_slab(batch)
        else:
            self._batches.append(batch)

    def _put_into_slab(self, batch: Batch) -> None:
        # Rows of another kind may alternate with plain ones: to close slabs again and again would cost, not spare.
        self._keeps_slabs = _is_plain(batch) and (self._slab is None or self._slab.is_like(batch))
        room = 0 if self._slab is None else self._slab.room
        if self._slab is not None and not (self._keeps_slabs and len(batch) <= room):
            self._batches, self._slab = self.batches, None
        if self._keeps_slabs and self._slab is None and LEAST_BATCHES * len(batch) <= (rows := _slab_rows(batch)):
            self._slab = _Slab(batch, rows)
        if self._slab is None:
            self._batches.append(batch)
        else:
            self._slab.add(batch)

    def take_filled(self, is_done: Callable[[Batch], bool]) -> list[Batch]:
        """Return the first batches to which nothing is added any more, up to one that is not done; keep the others."""
        count = next((n for n, batch in enumerate(self._batches) if not is_done(batch)), len(self._batches))
        taken, self._batches = self._batches[:count], self._batches[count:]
        return taken

    @property
    def batches(self) -> list[Batch]:
        """What has been added and not been taken; more may follow."""
        return self._batches if self._slab is None else [*self._batches, self._slab.batch()]


def _is_plain(batch: Batch) -> bool:
    return not batch.is_timeless and not batch.is_instant and all(map(is_plain, batch.columns.values()))


def _slab_rows(batch: Batch) -> int:
    return min(SLAB_ROWS, SLAB_BYTES // (8 * (len(batch.columns) + 3)))


class _Slab:
    """Large arrays, and how far they are filled; what is filled is not written to again.

    Numbers and ends are arrays only where they need be: numbers that follow each other are a range, equal durations one
    number.
    """

    def __init__(self, first: Batch, rows: int) -> None:
        self._rows = rows
        self._size = 0
        self._times = large_array(rows, np.int64)
        self._dtypes = _dtypes(first)
        self._columns = {name: large_array(rows, values_of(column).dtype) for name, column in first.columns.items()}
        self._duration = first.duration
        self._ends = None if first.duration is not None else large_array(rows, np.int64)
        self._is_numbered = first.ids is not None
        self._first_id = first.ids.start if isinstance(first.ids, range) else None
        self._ids = large_array(rows, np.int64) if isinstance(first.ids, np.ndarray) else None

    @property
    def room(self) -> int:
        return self._rows - self._size

    def is_like(self, batch: Batch) -> bool:
        """Say whether rows may stand beside those that are here."""
        return self._is_numbered == (batch.ids is not None) and _dtypes(batch) == self._dtypes

    def add(self, batch: Batch) -> None:
        self._keep_ends(batch)
        self._keep_numbers(batch)
        rows = slice(self._size, self._size + len(batch))
        self._times[rows] = batch.sync
        for name, column in batch.columns.items():
            self._columns[name][rows] = values_of(column)
        self._size = rows.stop

    def _keep_ends(self, batch: Batch) -> None:
        if self._ends is None and batch.duration != self._duration:
            ends = large_array(self._rows, np.int64)
            ends[: self._size] = self.batch().other
            self._ends = ends
        if self._ends is not None:
            self._ends[self._size : self._size + len(batch)] = batch.other

    def _keep_numbers(self, batch: Batch) -> None:
        if not self._is_numbered:
            return
        if self._ids is None and not self._are_next(batch.ids):
            ids = large_array(self._rows, np.int64)
            ids[: self._size] = numbers_of(self.batch()) if self._size else ()
            self._ids = ids
        if self._ids is not None:
            self._ids[self._size : self._size + len(batch)] = numbers_of(batch)

    def _are_next(self, ids: Int64s | range | None) -> bool:
        return isinstance(ids, range) and self._first_id is not None and ids.start == self._first_id + self._size

    def batch(self) -> Batch:
        """Return the rows, sharing the memory, unless most of it is not used."""
        columns = {
            name: series_from(name, self._shown(values), None, self._dtypes[name])
            for name, values in self._columns.items()
        }
        other = self._duration if self._ends is None else self._shown(self._ends)
        assert other is not None
        batch = Batch(self._shown(self._times), other, columns, self._numbers())
        batch.is_ordered = True
        return batch

    def _numbers(self) -> Int64s | range | None:
        if self._ids is not None:
            return self._shown(self._ids)
        return None if self._first_id is None else range(self._first_id, self._first_id + self._size)

    def _shown(self, values: Array) -> Array:
        return trimmed(values, self._size)


def _dtypes(batch: Batch) -> dict[str, pl.DataType]:
    return {name: column.dtype for name, column in batch.columns.items()}
