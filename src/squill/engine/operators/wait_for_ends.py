"""WaitForEnds: hold events until their end is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from squill.engine.batch import Batch
from squill.engine.open_events import OpenEvents
from squill.engine.operator import Belongs, Operator, OperatorState, register
from squill.engine.time_queue import TimeQueue
from squill.plan.nodes import WaitForEnds
from squill.time import INFINITY

__all__ = ["WaitForEndsOperator"]


@register(WaitForEnds)
class WaitForEndsOperator(Operator):
    """Edges become intervals; everything waits behind the earliest open event, and so does the clock."""

    def __init__(self, node: WaitForEnds) -> None:
        super().__init__(node)
        self._open = OpenEvents(node.schema)
        self._known = TimeQueue()

    def push(self, batch: Batch, port: int = 0) -> None:
        is_end = batch.other < batch.sync
        is_edge = is_end | (batch.other == INFINITY)
        self._known.add(batch.filter(~is_edge))
        if is_edge.any():
            edges = batch.filter(is_edge)
            entries = self._open.take(edges)
            ended = entries[edges.other < edges.sync]
            self._add_known(ended)
        self._emit_due(int(batch.sync[-1]))

    def _add_known(self, entries: np.ndarray) -> None:
        if len(entries):
            starts, ends = self._open.entries.start[entries], self._open.end_of[entries]
            self._known.add(Batch(starts, ends, self._open.entries.columns(entries)))
            self._open.free(entries)

    def advance(self, t: int, port: int = 0) -> None:
        if t == INFINITY:
            self._add_known(self._open.open_entries)
        self._emit_due(t)
        self.emit_clock(min(t, self._open.earliest_open))

    def _emit_due(self, t: int) -> None:
        due = self._known.pop_until(min(t, self._open.earliest_open))
        if due is not None:
            self.emit(due)

    def save(self) -> OperatorState:
        return {"clock": self.clock, "open": self._open.save(), "known": self._known.save()}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._open.load(state["open"])
        self._known.load(state["known"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            # It must: an event whose end goes elsewhere would hold time back for ever.
            self._open.keep(mine)
            self._known.keep(mine)
        return True

    @property
    def state_rows(self) -> int:
        return self._open.entries.live + len(self._known)
