"""Rows whose ends follow by number: found again by number, and let go once they are closed.

Rows come with growing numbers and are put at the end, so that a number is found by bisection. Closed rows are
thrown out when there are more of them than of open ones: each row is moved O(1) times.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s, endless
from squill.engine.buffers import grown
from squill.engine.operator import Belongs, OperatorState
from squill.engine.owned import owned
from squill.engine.row_store import RowStore

__all__ = ["NumberedRows"]


class NumberedRows:
    """The open rows of an operator that reports ends by number (`Operator.close_rows`).

    Examples
    --------
    >>> rows = NumberedRows({})
    >>> rows.add(Batch(np.array([1, 2, 3]), np.array([9, 9, 9]), ids=range(3)))
    >>> closed = rows.close(np.array([1, 0]), np.array([7, 8]))
    >>> closed.sync, closed.other, len(rows)
    (array([2, 1]), array([7, 8]), 1)
    """

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self._store = RowStore(types)
        self._ids = np.empty(16, np.int64)
        self._starts = np.empty(16, np.int64)
        self._is_open = np.zeros(16, np.bool_)
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def add(self, batch: Batch) -> None:
        """Take rows; their numbers are above all numbers seen."""
        assert batch.ids is not None
        first, size = len(self._store), len(batch)
        end = first + size
        self._ids = grown(self._ids, end, None)
        self._starts = grown(self._starts, end, None)
        self._is_open = grown(self._is_open, end, None)
        self._ids[first:end] = batch.ids
        self._starts[first:end] = batch.sync
        self._is_open[first:end] = True
        self._store.append(batch.columns, size)
        self._live += size

    def close(self, ids: Int64s, ends: Int64s, *, by_end: bool = False) -> Batch | None:
        """Return the rows of these numbers with their ends, in the order given or by end, then start.

        A number that is not here was filtered out before.
        """
        known = self._ids[: len(self._store)]
        places = np.searchsorted(known, ids)
        here = places < len(known)
        found = places[here]
        here[here] = (known[found] == ids[here]) & self._is_open[found]
        if np.count_nonzero(here) < len(here):
            places, ends = places[here], ends[here]
        if not len(places):
            return None
        starts = self._starts[places]
        if by_end and not _in_order(ends, starts):
            order = np.lexsort((starts, ends))
            places, starts, ends = places[order], starts[order], ends[order]
        rows = Batch(starts, ends, self._store.gather(places))
        self._is_open[places] = False
        self._live -= len(places)
        if self._store.is_wasteful(self._live):
            self._compact()
        return rows

    def _compact(self) -> None:
        places = self._open_places()
        self._store.keep(places)
        self._ids = self._ids[places]
        self._starts = self._starts[places]
        self._is_open = np.ones(len(places), np.bool_)

    def _open_places(self) -> Int64s:
        return np.flatnonzero(self._is_open[: len(self._store)])

    def take(self) -> Batch | None:
        """Return the rows that were never closed, and forget them."""
        if not self._live:
            return None
        places = self._open_places()
        rows = Batch(self._starts[places], endless(len(places)), self._store.gather(places))
        self._is_open[:] = False
        self._live = 0
        self._compact()
        return rows

    def keep(self, belongs: Belongs) -> None:
        """Throw out what does not belong here."""
        places = self._open_places()
        gone = places[~belongs(self._store.gather(places))]
        self._is_open[gone] = False
        self._live -= len(gone)
        self._compact()

    def save(self) -> OperatorState:
        # Closed rows are not left out: rows that stay where they are need not be written again.
        size = len(self._store)
        return {
            "store": self._store.save(),
            "ids": self._ids[:size],
            "starts": self._starts[:size],
            "is_open": self._is_open[:size],
        }

    def load(self, state: OperatorState) -> None:
        self._store.load(state["store"])
        self._ids, self._starts = owned(state["ids"]), owned(state["starts"])
        self._is_open = owned(state["is_open"])
        self._live = int(np.count_nonzero(self._is_open))


def _in_order(ends: Int64s, starts: Int64s) -> bool:
    ends_before, starts_before = ends[:-1], starts[:-1]
    wrong = (ends[1:] < ends_before) | ((ends[1:] == ends_before) & (starts[1:] < starts_before))
    return not np.count_nonzero(wrong)
