"""Sinks: what stands at the end of a pipeline and hands results to people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.collected_rows import CollectedRows
from squill.engine.columns import framed, joined
from squill.engine.edges import fold_edges
from squill.engine.expressions import time_series
from squill.engine.late_ends import LateEnds
from squill.engine.operator import NUMBERED, Operator, OperatorState
from squill.plan.node import Node
from squill.time import TimeType

__all__ = ["CollectSink", "result_frame"]


def result_frame(batch: Batch, node: Node) -> pl.DataFrame:
    """Return rows, in any order, as people get them: start, end, then the payload; no times where there are none."""
    return _frame([batch], node, in_order=False)


def _frame(batches: Sequence[Batch], node: Node, *, in_order: bool) -> pl.DataFrame:
    columns = [joined([batch.columns[name] for batch in batches]) for name in node.schema]
    if node.time is None or node.properties.per_window:
        return framed(columns)
    time = node.time
    start = joined([_times("start", batch.sync, time, in_order=in_order) for batch in batches])
    # Where all lifetimes are equally long, ends are in the order of their starts.
    end = joined(
        [_times("end", batch.other, time, in_order=in_order and batch.duration is not None) for batch in batches]
    )
    return framed([start, end, *columns])


def _times(name: str, ticks: Int64s, time: TimeType, *, in_order: bool) -> pl.Series:
    # In order the first and the last tell whether any of them is infinite.
    return time_series(name, ticks, time, (int(ticks[0]), int(ticks[-1])) if in_order and len(ticks) else None)


MANY_ROWS = 1 << 18
"""Whenever so many rows have come, those whose ends are all known are put aside."""
OnFinished = Callable[[list[Batch]], object]


class CollectSink(Operator):
    """Keeps every row until the end; ends may follow by number.

    The frame's columns are made of the batches that the rows were put into as they came. Of a long answer, batches
    before the first row that is still open are *finished*: they get their ends, which are then forgotten, and go to
    `on_finished`, if there is one, instead of being kept.
    """

    demands = NUMBERED

    def __init__(self, node: Node, on_finished: OnFinished | None = None) -> None:
        super().__init__(node)
        self._rows = CollectedRows()
        self._late = LateEnds()
        self._looked_at = 0
        self._finished: list[Batch] = []
        self._on_finished = on_finished

    def push(self, batch: Batch, port: int = 0) -> None:
        if not len(batch):
            return
        self._rows.add(batch)
        if batch.ids is not None:
            self._late.add(batch)
            if self._late.numbered - self._looked_at >= MANY_ROWS:
                self._looked_at = self._late.numbered
                self._finish_some()

    def _finish_some(self) -> None:
        first_open = self._late.first_open()
        done = self._rows.take_filled(lambda batch: _last_number(batch) < first_open)
        if not done:
            return
        finished = [_with_ends(batch, self._late.of) for batch in done]
        self._late.forget(before=_last_number(done[-1]) + 1)
        if self._on_finished is None:
            self._finished += finished
        else:
            self._on_finished(finished)

    def close_rows(self, ids: Int64s, ends: Int64s, port: int = 0) -> None:
        self._late.close(ids, ends)

    def rows(self) -> Batch:
        """Return all rows as intervals, in the order of their starts."""
        pieces = self.pieces()
        return Batch.concat(pieces) if pieces else Batch.empty(dict(self.node.schema))

    def pieces(self) -> list[Batch]:
        """Return all rows as intervals, in the order of their starts, in the pieces they are kept in if that can be."""
        batches = self._rows.batches
        if self._late.numbered:
            return [*self._finished, *(_with_ends(batch, self._late.of_last) for batch in batches)]
        if self.node.properties.ends_known or not batches:
            return batches
        return [fold_edges(Batch.concat(batches))]

    def frame(self) -> pl.DataFrame:
        """Return the answer, in the pieces that the rows are kept in."""
        return _frame(self.pieces() or [Batch.empty(dict(self.node.schema))], self.node, in_order=True)

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "batches": list(self._rows.batches),
            "finished": list(self._finished),
            "late": self._late.save(),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._rows = CollectedRows(list(state["batches"]))
        self._finished = list(state["finished"])
        self._late.load(state["late"])
        self._looked_at = self._late.numbered


def _last_number(batch: Batch) -> int:
    assert batch.ids is not None
    return int(batch.ids[-1])


def _with_ends(batch: Batch, ends_of: Callable[[Int64s | range], Int64s]) -> Batch:
    assert batch.ids is not None
    rows = Batch(batch.sync, ends_of(batch.ids), batch.columns)
    rows.is_ordered = batch.is_ordered
    return rows
