"""Sinks: what stands at the end of a pipeline and hands results to people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.buffers import grown, trimmed
from squill.engine.collected_rows import CollectedRows
from squill.engine.columns import framed, joined
from squill.engine.edges import fold_edges
from squill.engine.expressions import time_series
from squill.engine.kernels.edges import write_ends
from squill.engine.operator import NUMBERED, Operator, OperatorState
from squill.engine.owned import owned
from squill.plan.node import Node
from squill.time import INFINITY, TimeType

__all__ = ["CollectSink", "result_frame"]


def result_frame(batch: Batch, node: Node) -> pl.DataFrame:
    """Return rows as people get them: start, end, then the payload; no times where there are none."""
    return _frame([batch], list(batch.columns.values()), None, node)


def _frame(batches: list[Batch], columns: list[pl.Series], ends: Int64s | None, node: Node) -> pl.DataFrame:
    """Return the frame of rows whose columns are given together; `ends` stands for those of the batches."""
    if node.time is None or node.properties.per_window:
        return framed(columns)
    time = node.time
    start = joined([_starts(batch.sync, time) for batch in batches])
    end = time_series("end", ends, time) if ends is not None else joined([_ends(batch, time) for batch in batches])
    return framed([start, end, *columns])


def _starts(sync: Int64s, time: TimeType) -> pl.Series:
    # Starts are in order, so that the first and the last tell whether any of them is infinite.
    return time_series("start", sync, time, (int(sync[0]), int(sync[-1])) if len(sync) else None)


def _ends(batch: Batch, time: TimeType) -> pl.Series:
    """Return the ends; where all lifetimes are equally long they are in order too."""
    in_order = batch.duration is not None and len(batch) > 0
    ends = batch.other
    return time_series("end", ends, time, (int(ends[0]), int(ends[-1])) if in_order else None)


FIRST_ENDS = 1 << 16
GROWTH = 4
"""Ends are given so many times the room that they had: to grow is to copy."""


class CollectSink(Operator):
    """Keeps every row until the end; ends that follow by number are written into one array as they come.

    The frame's columns are made of the batches that the rows were put into as they came.
    """

    demands = NUMBERED

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._rows = CollectedRows()
        self._ends = np.empty(0, np.int64)
        self._numbered = 0

    def push(self, batch: Batch, port: int = 0) -> None:
        self._rows.add(batch)
        if batch.ids is not None and len(batch):
            last = int(batch.ids[-1]) + 1
            if last > len(self._ends):
                self._ends = grown(self._ends, max(GROWTH * len(self._ends), last, FIRST_ENDS), None)
            self._note_ends(batch, last)
            self._numbered = last

    def _note_ends(self, batch: Batch, last: int) -> None:
        if isinstance(batch.ids, range) and batch.ids.start == self._numbered:
            self._ends[self._numbered : last] = INFINITY if batch.duration == INFINITY else batch.other
            return
        self._ends[self._numbered : last] = INFINITY
        if batch.duration != INFINITY:
            self._ends[batch.ids] = batch.other

    def close_rows(self, ids: Int64s, ends: Int64s, port: int = 0) -> None:
        if self._numbered:
            write_ends(self._ends, ids, ends, self._numbered)

    def rows(self) -> Batch:
        """Return all rows as intervals, in the order of their starts."""
        batches = self._rows.batches
        if not batches:
            return Batch.empty(dict(self.node.schema))
        rows = Batch.concat(batches)
        if self._numbered:
            return Batch(rows.sync, self._numbered_ends(batches), rows.columns)
        return rows if self.node.properties.ends_known else fold_edges(rows)

    def pieces(self) -> list[Batch]:
        """Return all rows as intervals, in the order of their starts, in the pieces they are kept in if that can be."""
        batches = self._rows.batches
        if self.node.properties.ends_known and not self._numbered:
            return batches
        if not self._numbered or any(batch.ids is None for batch in batches):
            rows = self.rows()
            return [rows] if len(rows) else []
        self._ends = trimmed(self._ends, self._numbered)
        return [Batch(batch.sync, self._ends_of(batch), batch.columns) for batch in batches if len(batch)]

    def _ends_of(self, batch: Batch) -> Int64s:
        assert batch.ids is not None
        if isinstance(batch.ids, range):
            return self._ends[batch.ids.start : batch.ids.stop]
        return self._ends[batch.ids]

    def _numbered_ends(self, batches: Sequence[Batch]) -> Int64s:
        self._ends = trimmed(self._ends, self._numbered)
        if len(self._rows) == self._numbered:
            return self._ends
        return np.concatenate([self._ends_of(batch) for batch in batches])

    def frame(self) -> pl.DataFrame:
        """Return the answer, in the pieces that the rows are kept in."""
        batches = self._rows.batches
        if not batches or not (self._numbered or self.node.properties.ends_known):
            return result_frame(self.rows(), self.node)
        columns = [joined([batch.columns[name] for batch in batches]) for name in self.node.schema]
        return _frame(batches, columns, self._numbered_ends(batches) if self._numbered else None, self.node)

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "batches": list(self._rows.batches),
            "ends": self._ends[: self._numbered],
            "numbered": self._numbered,
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._rows = CollectedRows(list(state["batches"]))
        self._ends = owned(state["ends"])
        self._numbered = state["numbered"]
