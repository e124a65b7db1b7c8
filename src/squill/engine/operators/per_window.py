"""PerWindow: one row per window, with the window's bounds as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from squill.engine.batch import Batch
from squill.engine.expressions import time_series
from squill.engine.grid_pieces import expand
from squill.engine.open_events import OpenEvents
from squill.engine.operator import Belongs, Operator, OperatorState, register
from squill.engine.time_queue import TimeQueue
from squill.engine.times import shifted
from squill.errors import UnboundedResultError
from squill.plan.nodes import PerWindow
from squill.time import INFINITY

__all__ = ["PerWindowOperator"]


@register(PerWindow)
class PerWindowOperator(Operator):
    """An answer that lives over several hops gives a row at each; state: the open answers."""

    def __init__(self, node: PerWindow) -> None:
        super().__init__(node)
        self._node = node
        self._size, self._hop = node.window.size, node.window.hop
        self._open = OpenEvents(node.parent.schema)
        self._due = TimeQueue()

    def push(self, batch: Batch, port: int = 0) -> None:
        entries = self._open.take(batch)
        is_start = batch.other == INFINITY
        self._due.add(Batch(batch.sync[is_start], entries[is_start]))
        self._emit_windows(int(batch.sync[-1]))

    def advance(self, t: int, port: int = 0) -> None:
        if t == INFINITY and len(self._open.open_entries):
            raise UnboundedResultError("per_window: an answer never ends", "use a window before the aggregate.")
        self._emit_windows(t)
        self.emit_clock(t)

    def _emit_windows(self, reached: int) -> None:
        """Give a row for each window end before `reached`; whether an answer is still alive at it is not known."""
        due = self._due.pop_until(reached if reached == INFINITY else reached - 1)
        if due is None:
            return
        entries, ends = due.other, self._open.end_of[due.other]
        last = np.minimum(ends, reached) - 1
        window_ends, rows = expand(due.sync, last, self._hop, "per_window")
        following = np.where(last >= due.sync, last - (last - due.sync) % self._hop + self._hop, due.sync)
        over = ends <= following
        if len(window_ends):
            order = np.argsort(window_ends, kind="stable")
            self.emit(self._rows(window_ends[order], entries[rows[order]]))
        self._due.add(Batch(following, entries).filter(~over))
        self._open.free(entries[over])

    def _rows(self, window_ends: np.ndarray, entries: np.ndarray) -> Batch:
        payload = self._open.entries.columns(entries)
        time = self._node.time
        payload["window_start"] = time_series("window_start", shifted(window_ends, -self._size, self._node), time)
        payload["window_end"] = time_series("window_end", window_ends, time)
        columns = {name: payload[name] for name in self._node.schema}
        return Batch(window_ends, shifted(window_ends, self._hop, self._node), columns)

    def save(self) -> OperatorState:
        return {"clock": self.clock, "open": self._open.save(), "due": self._due.save()}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._open.load(state["open"])
        self._due.load(state["due"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            self._open.keep_waiting(self._due, mine)
        return True

    @property
    def state_rows(self) -> int:
        return self._open.entries.live
