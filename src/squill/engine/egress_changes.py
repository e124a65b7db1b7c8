"""Results as changes: rows (time, diff, payload) whose sum of diffs up to t is the answer at t."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.columns import framed
from squill.engine.expressions import time_series
from squill.engine.operator import Belongs, Operator, OperatorState
from squill.engine.time_queue import TimeQueue
from squill.errors import PlanError
from squill.plan.node import Node
from squill.time import INFINITY

__all__ = ["ChangeRowsSink", "ChangesSink", "change_frame"]

CHANGE_COLUMNS = ("time", "diff")


class ChangeRowsSink(Operator):
    """Holds the changes of the instant that the clock stands at, and the ends that are not due.

    Changes at t leave once the clock is past t: until then a −1 may follow, which goes before every +1.
    Memory: one row per event alive whose end is known, and one instant.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._queue = TimeQueue()
        self._ready: list[Batch] = []

    def push(self, batch: Batch, port: int = 0) -> None:
        ends = batch.other < batch.sync
        self._queue.add(Batch(batch.sync, np.where(ends, -1, 1), batch.columns))
        later = np.flatnonzero((batch.other > batch.sync) & (batch.other != INFINITY))
        if len(later):
            rows = batch.take(later) if len(later) < len(batch) else batch
            self._queue.add(Batch(rows.other, np.full(len(rows), -1), rows.columns))

    def advance(self, t: int, port: int = 0) -> None:
        self.clock = t
        due = self._queue.pop_until(t - 1)
        if due is not None:
            self._ready.append(_in_order(due))

    def take_rows(self) -> Batch | None:
        """Return the changes that are final and were not taken yet, as (time, diff, payload); None for none."""
        if not self._ready:
            return None
        rows = Batch.concat(self._ready)
        self._ready = []
        return rows

    def save(self) -> OperatorState:
        return {"clock": self.clock, "queue": self._queue.save(), "ready": list(self._ready)}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._queue.load(state["queue"])
        self._ready = list(state["ready"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            self._queue.keep(mine)
        return True

    @property
    def state_rows(self) -> int:
        return len(self._queue)


class ChangesSink(ChangeRowsSink):
    """The same for subscribers, who get frames."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        for name in CHANGE_COLUMNS:
            if name in node.schema:
                raise PlanError(
                    f'subscribe: a column called {name!r} is there already, where emit="changes" puts its own',
                    f'rename it before, or use emit="closed"; for instance .rename({{{name!r}: "{name}_value"}}).',
                )

    def take(self) -> pl.DataFrame | None:
        """Return the changes that are final and were not taken yet; None when there are none."""
        rows = self.take_rows()
        return None if rows is None else change_frame(rows, self.node)


def change_frame(rows: Batch, node: Node) -> pl.DataFrame:
    """Return changes, whose sync is their time and whose other is their diff, as a subscriber gets them."""
    assert node.time is not None
    times = time_series("time", rows.sync, node.time)
    return framed([times, pl.Series("diff", rows.other), *rows.columns.values()])


def _in_order(rows: Batch) -> Batch:
    """Return changes by time, −1 before +1."""
    if _ordered(rows.sync, rows.other):
        return rows
    return rows.take(np.lexsort((rows.other, rows.sync)))


def _ordered(time: Int64s, diff: Int64s) -> bool:
    same = time[1:] == time[:-1]
    return not bool((same & (diff[1:] < diff[:-1])).any())
