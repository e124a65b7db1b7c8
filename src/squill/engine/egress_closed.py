"""Results as closed rows: each event once, as (start, end, payload), when its end has come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.edges import fold_edges
from squill.engine.egress import result_frame
from squill.engine.numbered_rows import NumberedRows
from squill.engine.operator import NUMBERED, Belongs, Operator, OperatorState
from squill.engine.time_queue import TimeQueue
from squill.plan.node import Node
from squill.time import INFINITY

__all__ = ["ClosedSink", "OpenRows"]


class OpenRows:
    """Start edges whose end edge has not come, and end edges that still stand for nothing but themselves.

    An end edge is a whole row by itself, so edges are matched only to know what is open when the stream ends;
    that is done each time the rows kept have doubled.
    """

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._rows = 0
        self._after_last = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, edges: Batch) -> None:
        if len(edges):
            self._batches.append(edges)
            self._rows += len(edges)
            if self._rows > 2 * self._after_last + 65_536:
                self._fold()

    def _fold(self) -> None:
        rows = fold_edges(Batch.concat(self._batches))
        self._batches = [rows.filter(rows.other == INFINITY)]
        self._rows = self._after_last = len(self._batches[0])

    def take(self) -> Batch | None:
        """Return the rows that nothing has ended."""
        if not self._batches:
            return None
        self._fold()
        (rows,) = self._batches
        self.__init__()  # type: ignore[misc]
        return rows

    def keep(self, belongs: Belongs) -> None:
        """Throw out what does not belong here."""
        self._batches = [batch.filter(belongs(batch.columns)) for batch in self._batches]
        self._rows = sum(map(len, self._batches))

    def save(self) -> OperatorState:
        return {"batches": list(self._batches), "rows": self._rows, "after_last": self._after_last}

    def load(self, state: OperatorState) -> None:
        self._batches, self._rows = list(state["batches"]), state["rows"]
        self._after_last = state["after_last"]


class ClosedSink(Operator):
    """Rows leave when the clock reaches their end, ordered by end, then start; endless ones at completion.

    With `at_once` a row leaves as soon as its end is known, which bounds memory by the rows that are open.
    """

    demands = NUMBERED

    def __init__(self, node: Node, *, at_once: bool = False) -> None:
        super().__init__(node)
        self._at_once = at_once
        self._queue = TimeQueue()
        self._open = OpenRows()
        self._numbered = NumberedRows(node.schema)
        self._closing = TimeQueue()
        """The ends of numbered rows that are not due, as (end, number)."""
        self._ready: list[Batch] = []

    def push(self, batch: Batch, port: int = 0) -> None:
        if batch.ids is not None:
            self._push_numbered(batch)
        elif self.node.properties.ends_known:
            self._close(batch.sync, batch.other, batch)
        else:
            self._push_edges(batch)

    def _push_numbered(self, batch: Batch) -> None:
        self._numbered.add(batch)
        if batch.duration != INFINITY:
            ended = np.flatnonzero(batch.other != INFINITY)
            if len(ended):
                rows = batch.take(ended)
                self.close_rows(np.asarray(rows.ids), rows.other)

    def _push_edges(self, batch: Batch) -> None:
        is_end = batch.other < batch.sync
        starts = np.minimum(batch.sync, batch.other)
        ends = np.maximum(batch.sync, batch.other)
        closed = np.flatnonzero(is_end | (batch.other != INFINITY))
        if len(closed):
            self._close(starts[closed], ends[closed], batch.take(closed))
        self._open.add(batch.filter(is_end | (batch.other == INFINITY)))

    def close_rows(self, ids: Int64s, ends: Int64s, port: int = 0) -> None:
        if not self._at_once:
            self._closing.add(Batch(ends, ids))
        elif (rows := self._numbered.close(ids, ends)) is not None:
            self._ready.append(rows)

    def _close(self, starts: Int64s, ends: Int64s, rows: Batch) -> None:
        if self._at_once:
            self._ready.append(Batch(starts, ends, rows.columns))
        else:
            self._queue.add(Batch(ends, starts, rows.columns))

    def advance(self, t: int, port: int = 0) -> None:
        self.clock = t
        due = self._queue.pop_until(t)
        if due is not None:
            self._release(due)
        ended = self._closing.pop_until(t)
        if ended is not None and (rows := self._numbered.close(ended.other, ended.sync, by_end=True)) is not None:
            self._ready.append(rows)
        if t == INFINITY:
            for rest in (self._open.take(), self._numbered.take()):
                if rest is not None and len(rest):
                    self._release(Batch(np.full(len(rest), INFINITY), rest.sync, rest.columns))

    def _release(self, due: Batch) -> None:
        same = due.sync[1:] == due.sync[:-1]
        if np.count_nonzero(same & (due.other[1:] < due.other[:-1])):
            due = due.take(np.lexsort((due.other, due.sync)))
        self._ready.append(Batch(due.other, due.sync, due.columns))

    def take_rows(self) -> Batch | None:
        """Return the rows that are ready and were not taken yet."""
        if not self._ready:
            return None
        rows = Batch.concat(self._ready)
        self._ready = []
        return rows

    def take(self) -> pl.DataFrame | None:
        """Return them as people get them."""
        rows = self.take_rows()
        return None if rows is None else result_frame(rows, self.node)

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "queue": self._queue.save(),
            "open": self._open.save(),
            "numbered": self._numbered.save(),
            "closing": self._closing.save(),
            "ready": list(self._ready),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._queue.load(state["queue"])
        self._open.load(state["open"])
        self._numbered.load(state["numbered"])
        self._closing.load(state["closing"])
        self._ready = list(state["ready"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            # Of numbers that are no more `_closing` may still know the ends, which then close nothing.
            for rows in (self._queue, self._open, self._numbered):
                rows.keep(mine)
        return True

    @property
    def state_rows(self) -> int:
        return len(self._queue) + len(self._open) + len(self._numbered)
