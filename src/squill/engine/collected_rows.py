"""Rows that are kept until the end, as few large batches.

Batches that are kept as they come hold the memory that operators have just written to, so that these must ask for more,
and the system clears it page by page. So from some rows on they are copied into large arrays while the caches have
them, and their own memory serves the next batch: over 7 M rows in 160 batches there were 17,000 page faults, and there
are 200. Rows whose columns are not all plain words are kept as they come.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch, Int64s
from squill.engine.columns import is_plain, series_from, values_of
from squill.engine.large_arrays import large_array

__all__ = ["CollectedRows"]

FEW_ROWS = 1 << 18
"""So many rows are kept as they come: a small answer is to cost no large array."""
SLAB_ROWS = 1 << 20

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

    def __len__(self) -> int:
        return self._rows

    def add(self, batch: Batch) -> None:
        """Keep the rows, without their hashes."""
        self._rows += len(batch)
        if self._slab is not None and not self._slab.takes(batch):
            self._close()
        if self._slab is None and self._rows > FEW_ROWS and len(batch) <= SLAB_ROWS and _is_plain(batch):
            self._slab = _Slab(batch)
        if self._slab is None:
            self._batches.append(batch)
        else:
            self._slab.add(batch)

    @property
    def batches(self) -> list[Batch]:
        """What has been added; more may follow."""
        return self._batches if self._slab is None else [*self._batches, self._slab.batch()]

    def _close(self) -> None:
        self._batches = self.batches
        self._slab = None


def _is_plain(batch: Batch) -> bool:
    return not batch.is_timeless and not batch.is_instant and all(map(is_plain, batch.columns.values()))


class _Slab:
    """Large arrays, and how far they are filled; what is filled is not written to again.

    Rows are numbered, all of them, one after the other or in any way, or none of them.
    """

    def __init__(self, first: Batch) -> None:
        self._size = 0
        self._times = large_array(SLAB_ROWS, np.int64)
        self._dtypes = {name: column.dtype for name, column in first.columns.items()}
        self._columns = {
            name: large_array(SLAB_ROWS, values_of(column).dtype) for name, column in first.columns.items()
        }
        self._duration = first.duration
        self._ends = large_array(SLAB_ROWS, np.int64) if self._duration is None else None
        self._range = first.ids if isinstance(first.ids, range) else None
        self._ids = large_array(SLAB_ROWS, np.int64) if isinstance(first.ids, np.ndarray) else None

    def takes(self, batch: Batch) -> bool:
        """Say whether rows can follow those that are here."""
        return (
            self._size + len(batch) <= SLAB_ROWS
            and batch.duration == self._duration
            and self._continues(batch.ids)
            and _is_plain(batch)
        )

    def _continues(self, ids: Int64s | range | None) -> bool:
        if isinstance(ids, range):
            return self._range is not None and ids.start == self._range.start + self._size
        return self._range is None and (ids is None) == (self._ids is None)

    def add(self, batch: Batch) -> None:
        rows = slice(self._size, self._size + len(batch))
        self._times[rows] = batch.sync
        for name, column in batch.columns.items():
            self._columns[name][rows] = values_of(column)
        if self._ends is not None:
            self._ends[rows] = batch.other
        if self._ids is not None:
            self._ids[rows] = batch.ids
        self._size = rows.stop

    def batch(self) -> Batch:
        """Return the rows, sharing the memory."""
        rows = slice(0, self._size)
        columns = {
            name: series_from(name, values[rows], None, self._dtypes[name]) for name, values in self._columns.items()
        }
        ids: Int64s | range | None = None if self._ids is None else self._ids[rows]
        if self._range is not None:
            ids = range(self._range.start, self._range.start + self._size)
        other = self._ends[rows] if self._ends is not None else self._duration
        assert other is not None
        batch = Batch(self._times[rows], other, columns, ids)
        batch.is_ordered = True
        return batch
