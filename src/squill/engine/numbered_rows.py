"""Rows whose ends follow by number: found again by number, and let go once they are closed.

Rows come with growing numbers, so every run is sorted by number and runs follow each other. Runs of like size
are merged, without the rows that are closed by then: each row is moved O(log n) times and a closing looks at
O(log n) runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch, Int64s
from squill.engine.operator import OperatorState

__all__ = ["NumberedRows"]


class Run:
    """Rows with ascending numbers; `alive` says which are not closed."""

    __slots__ = ("alive", "batch", "count", "ids")

    def __init__(self, batch: Batch, ids: Int64s, alive: npt.NDArray[np.bool_] | None = None) -> None:
        self.batch = batch
        self.ids = ids
        self.alive = np.ones(len(ids), np.bool_) if alive is None else alive
        self.count = int(np.count_nonzero(self.alive))

    def compacted(self) -> Run:
        if self.count == len(self.ids):
            return self
        rows = np.flatnonzero(self.alive)
        return Run(self.batch.take(rows), self.ids[rows])


class NumberedRows:
    """The open rows of an operator that reports ends by number (`Operator.close_rows`).

    Examples
    --------
    >>> rows = NumberedRows()
    >>> rows.add(Batch(np.array([1, 2, 3]), np.array([9, 9, 9]), ids=range(3)))
    >>> [(closed.sync, ends) for closed, ends in rows.close(np.array([1, 0]), np.array([7, 8]))]
    [(array([2, 1]), array([7, 8]))]
    >>> len(rows)
    1
    """

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def add(self, batch: Batch) -> None:
        """Take rows; their numbers are above all numbers seen."""
        if not len(batch):
            return
        assert batch.ids is not None
        ids = np.arange(batch.ids.start, batch.ids.stop) if isinstance(batch.ids, range) else batch.ids
        self._runs.append(Run(Batch(batch.sync, batch.other, batch.columns), ids))
        while len(self._runs) > 1 and self._runs[-2].count <= 2 * self._runs[-1].count:
            right, left = self._runs.pop().compacted(), self._runs.pop().compacted()
            if left.count:
                merged = Batch.concat([left.batch, right.batch])
                right = Run(merged, np.concatenate([left.ids, right.ids]))
            self._runs.append(right)

    def close(self, ids: Int64s, ends: Int64s) -> Iterator[tuple[Batch, Int64s]]:
        """Yield the rows of these numbers with their ends; a number that is not here was filtered out before."""
        for run in self._runs:
            places = np.searchsorted(run.ids, ids)
            inside = places < len(run.ids)
            found = places[inside]
            inside[inside] = (run.ids[found] == ids[inside]) & run.alive[found]
            if inside.any():
                rows = places[inside]
                run.alive[rows] = False
                run.count -= len(rows)
                yield run.batch.take(rows), ends[inside]
        self._runs = [run for run in self._runs if run.count]

    def take(self) -> Batch | None:
        """Return the rows that were never closed."""
        left = [run.compacted().batch for run in self._runs if run.count]
        self._runs = []
        return Batch.concat(left) if left else None

    def save(self) -> OperatorState:
        # Closed rows are not left out: rows that stay where they are need not be written again.
        return {"runs": [(run.batch, run.ids, run.alive) for run in self._runs]}

    def load(self, state: OperatorState) -> None:
        self._runs = [Run(batch, ids, alive.copy()) for batch, ids, alive in state["runs"]]
