"""The base of operators that map each row to rows which take effect at the same time or later."""

from __future__ import annotations

from collections.abc import Sequence

from squill.engine.batch import Batch
from squill.engine.matching import without_cancelled
from squill.engine.operator import Belongs, Operator, OperatorState
from squill.engine.time_queue import TimeQueue
from squill.plan.node import Node

__all__ = ["CancellingDelayOperator", "DelayOperator"]


class DelayOperator(Operator):
    """Rows that are due leave, in time order; the others wait.

    A subclass gives `map`, the new rows for a batch, and may change `release`: up to which new sync rows may
    leave when the input has come to t.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._queue = TimeQueue()

    def map(self, batch: Batch) -> Batch:
        """Return the rows that the batch becomes, in any order."""
        raise NotImplementedError

    def release(self, t: int) -> int:
        """Return the last sync that may leave once the input has come to t."""
        return t

    def output_clock(self, t: int) -> int:
        return t

    def push(self, batch: Batch, port: int = 0) -> None:
        until = self.release(int(batch.sync[-1]))
        rows = self.map(batch).sorted_by_sync()
        if not len(self._queue) and len(rows) and rows.sync[-1] <= until:
            self.emit(rows)
            return
        self._queue.add(rows)
        self._emit_due(until)

    def advance(self, t: int, port: int = 0) -> None:
        self._emit_due(self.release(t))
        self.emit_clock(self.output_clock(t))

    def _emit_due(self, until: int) -> None:
        due = self._queue.pop_until(until)
        if due is not None:
            self.emit(due)

    def save(self) -> OperatorState:
        return {"clock": self.clock, "queue": self._queue.save()}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._queue.load(state["queue"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            self._queue.keep(mine)
        return True

    @property
    def state_rows(self) -> int:
        return len(self._queue)


class CancellingDelayOperator(DelayOperator):
    """Some of the rows that wait are taken back before they are due.

    `map` puts an equal row (times and payload) into `_cancelled` for each.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._cancelled = TimeQueue()

    def push(self, batch: Batch, port: int = 0) -> None:
        self._queue.add(self.map(batch))
        self._emit_due(self.release(int(batch.sync[-1])))

    def _emit_due(self, until: int) -> None:
        due = without_cancelled(self._queue.pop_until(until), self._cancelled.pop_until(until))
        if due is not None:
            self.emit(due)

    def save(self) -> OperatorState:
        return {**super().save(), "cancelled": self._cancelled.save()}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._cancelled.load(state["cancelled"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            self._cancelled.keep(mine)
        return super().keep(belongs)

    @property
    def state_rows(self) -> int:
        return len(self._queue) + len(self._cancelled)
