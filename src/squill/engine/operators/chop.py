"""Chop: split lifetimes at the grid points strictly inside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from squill.engine.batch import Batch, Int64s
from squill.engine.grid_pieces import expand, last_grid_point, next_grid_point
from squill.engine.open_events import OpenEvents
from squill.engine.operator import Belongs, Operator, OperatorState, register
from squill.engine.time_queue import TimeQueue
from squill.errors import UnboundedResultError
from squill.plan.nodes import Chop
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["ChopOperator"]


@register(Chop)
class ChopOperator(Operator):
    """Pieces leave when time reaches them; state: the alive events.

    Intervals leave as intervals, what remains of them waiting under the next grid point. Start edges leave
    as edges: at a grid point that is over one piece ends and the next begins, until the event's end edge.
    """

    def __init__(self, node: Chop) -> None:
        super().__init__(node)
        self._period, self._offset = node.period, node.offset % node.period
        self._is_bounded = node.until is not None
        self._until = INFINITY if node.until is None else node.until
        self._has_edges = not node.parent.properties.ends_known
        self._rest = TimeQueue()
        self._open = OpenEvents(node.schema)
        self._cuts = TimeQueue()

    def push(self, batch: Batch, port: int = 0) -> None:
        reached = int(batch.sync[-1])
        if batch.sync[0] == MINUS_INFINITY:
            raise UnboundedResultError(
                "chop: an event that has no start has infinitely many pieces; relational rows united with temporal "
                "ones begin at minus infinity",
                "give the relational input a time before the union, with start=.",
            )
        is_edge = (batch.other < batch.sync) | (batch.other == INFINITY) if self._has_edges else None
        if is_edge is None or not is_edge.any():
            self._rest.add(batch)
            self._emit(reached, None)
        else:
            self._rest.add(batch.filter(~is_edge))
            self._emit(reached, batch.filter(is_edge))

    def advance(self, t: int, port: int = 0) -> None:
        if t == INFINITY:
            self._refuse_endless()
        self._emit(t, None)
        self.emit_clock(t)

    def _emit(self, reached: int, edges: Batch | None) -> None:
        parts = [self._interval_pieces(reached)]
        if self._has_edges:
            if edges is not None:
                parts.append(self._take_edges(edges))
            parts.append(self._cut_open(reached))
        rows = [part for part in parts if part is not None and len(part)]
        if rows:
            self.emit(Batch.concat(rows).sorted_by_sync())

    def _next_cut(self, times: Int64s) -> Int64s:
        following = next_grid_point(times, self._period, self._offset)
        return np.where(following > self._until, INFINITY, following) if self._is_bounded else following

    # -- intervals ----------------------------------------------------------------------------------------

    def _interval_pieces(self, reached: int) -> Batch | None:
        due = self._rest.pop_until(reached)
        if due is None:
            return None
        cut = np.minimum(due.other, self._next_cut(due.sync))
        first = Batch(due.sync, cut, due.columns)
        # What never ends is kept although no grid point follows: it is refused at completion.
        longer = (due.other > cut) | ((due.other == INFINITY) & (not self._is_bounded))
        if not longer.any():
            return first
        rest = due.filter(longer)
        begins, ends = cut[longer], rest.other
        last = np.minimum(np.minimum(ends - 1, reached), self._until)
        starts, rows = expand(begins, last, self._period, "chop")
        pieces = rest.take(rows)
        pieces = Batch(starts, np.minimum(self._next_cut(starts), ends[rows]), pieces.columns)
        remaining = np.where(last >= begins, self._next_cut(last), begins)
        waits = (remaining < ends) | ((ends == INFINITY) & (not self._is_bounded))
        self._rest.add(Batch(remaining, ends, rest.columns).filter(waits))
        return Batch.concat([first, pieces]) if len(pieces) else first

    # -- edges --------------------------------------------------------------------------------------------

    def _piece_start(self, starts: Int64s, before: Int64s) -> Int64s:
        """Where the piece that is alive just before a time began."""
        return np.maximum(starts, last_grid_point(np.minimum(before - 1, self._until), self._period, self._offset))

    def _take_edges(self, edges: Batch) -> Batch:
        entries = self._open.take(edges)
        is_start = edges.other == INFINITY
        begun = entries[is_start]
        self._cuts.add(Batch(self._next_cut(self._open.entries.start[begun]), begun))
        starts = np.minimum(edges.sync, edges.other)
        return Batch(edges.sync, np.where(is_start, INFINITY, self._piece_start(starts, edges.sync)), edges.columns)

    def _cut_open(self, reached: int) -> Batch | None:
        """Cut the open events at the grid points before `reached`; one at it may still be an end."""
        due = self._cuts.pop_until(reached if reached == INFINITY else reached - 1)
        if due is None:
            return None
        entries, ends = due.other, self._open.end_of[due.other]
        last = np.minimum(np.minimum(ends, reached) - 1, self._until)
        cuts, rows = expand(due.sync, last, self._period, "chop")
        following = np.where(last >= due.sync, self._next_cut(last), due.sync)
        over = (ends <= following) & (ends != INFINITY)
        result = self._cut_edges(cuts, entries[rows]) if len(cuts) else None
        self._cuts.add(Batch(following, entries).filter(~over))
        self._open.free(entries[over])
        return result

    def _cut_edges(self, cuts: Int64s, entries: Int64s) -> Batch:
        begins = self._piece_start(self._open.entries.start[entries], cuts)
        columns = self._open.entries.columns(entries)
        ends = Batch(cuts, begins, columns)
        return Batch.concat([ends, Batch(cuts, np.full(len(cuts), INFINITY), columns)])

    def _refuse_endless(self) -> None:
        if self._is_bounded:
            return
        endless = len(self._open.open_entries) + self._rest.count_endless()
        if endless:
            raise UnboundedResultError(
                f"chop: {endless} events never end, so they have infinitely many pieces",
                "limit them first with clip(…) or with_duration(…).",
            )

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "rest": self._rest.save(),
            "open": self._open.save(),
            "cuts": self._cuts.save(),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._rest.load(state["rest"])
        self._open.load(state["open"])
        self._cuts.load(state["cuts"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            # It must: an event whose end goes elsewhere would be refused as endless.
            self._rest.keep(mine)
            self._open.keep_waiting(self._cuts, mine)
        return True

    @property
    def state_rows(self) -> int:
        return len(self._rest) + self._open.entries.live
