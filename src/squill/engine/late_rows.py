"""The side stream of late rows: as they arrived, each with the current time that it met.

A source may run for months, so only the newest are kept; all are counted.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.columns import series_from
from squill.engine.expressions import time_series
from squill.engine.operator import OperatorState
from squill.plan.nodes import Source
from squill.time import TimeType

__all__ = ["LateRows", "late_frame"]

LATE_BY = "late_by"


class LateRows:
    """The newest `keep` late rows, and how many there were in all.

    Examples
    --------
    >>> late = LateRows(keep=2)
    >>> for t in (3, 1, 2):
    ...     late.add(Batch(np.array([t]), 1), np.array([9]))
    >>> late.rows().sync, late.times_met(), late.total
    (array([1, 2]), array([9, 9]), 3)
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._batches: list[Batch] = []
        self._met: list[Int64s] = []
        self.total = 0

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def add(self, rows: Batch, met: Int64s) -> None:
        """Take rows in arrival order, each with the time that it met."""
        self.total += len(rows)
        if len(rows) > self._keep:
            # A copy: a slice would keep the memory of the whole for as long as it lives.
            newest = np.arange(len(rows) - self._keep, len(rows))
            rows, met = rows.take(newest), met[newest]
        self._batches.append(rows)
        self._met.append(met)
        # Sizes halve from one batch to the next, so that rows coming one by one do not make many batches.
        while len(self._batches) > 1 and len(self._batches[-2]) <= 2 * len(self._batches[-1]):
            self._batches[-2:] = [Batch.concat(self._batches[-2:])]
            self._met[-2:] = [np.concatenate(self._met[-2:])]
        self._forget_oldest(len(self) - self._keep)

    def _forget_oldest(self, count: int) -> None:
        while count > 0:
            first = self._batches[0]
            gone = min(count, len(first))
            count -= gone
            if gone == len(first):
                del self._batches[0], self._met[0]
            else:
                self._batches[0] = first.slice(gone, len(first))
                self._met[0] = self._met[0][gone:]

    def rows(self) -> Batch | None:
        """Return the rows that are kept, in arrival order; None when there are none."""
        return Batch.concat(self._batches) if self._batches else None

    def times_met(self) -> Int64s:
        return np.concatenate(self._met) if self._met else np.empty(0, np.int64)

    def clear(self) -> None:
        """Forget the rows; their count stays."""
        self._batches.clear()
        self._met.clear()

    def save(self) -> OperatorState:
        return {"batches": list(self._batches), "met": list(self._met), "total": self.total}

    def load(self, state: OperatorState) -> None:
        self._batches, self._met, self.total = list(state["batches"]), list(state["met"]), state["total"]


def late_frame(late: LateRows, source: Source) -> pl.DataFrame:
    """Return the late rows as people get them: start, end, the payload, and how late each was.

    An end edge has the start of its event and the end that came too late; a start edge has no end.
    """
    assert source.time is not None
    rows = late.rows()
    if rows is None:
        rows = Batch.empty(dict(source.schema))
    start = time_series("start", np.minimum(rows.sync, rows.other), source.time)
    end = time_series("end", np.maximum(rows.sync, rows.other), source.time)
    name = LATE_BY
    while name in rows.columns:
        name += "_"
    return pl.DataFrame(
        [start, end, *rows.columns.values(), _duration(name, late.times_met() - rows.sync, source.time)]
    )


def _duration(name: str, ticks: Int64s, time: TimeType) -> pl.Series:
    dtype = time.dtype
    if isinstance(dtype, pl.Datetime):
        return series_from(name, ticks, None, pl.Duration(dtype.time_unit))
    if isinstance(dtype, pl.Date):
        return series_from(name, ticks * 86_400_000, None, pl.Duration("ms"))
    return pl.Series(name, ticks)
