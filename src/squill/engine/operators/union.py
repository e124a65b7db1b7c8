"""Union: all rows of all inputs, in time order."""

from __future__ import annotations

from collections.abc import Sequence

from squill.engine.batch import Batch
from squill.engine.operator import Belongs, Operator, OperatorState, register
from squill.engine.time_queue import TimeQueue
from squill.plan.nodes import Union
from squill.time import MINUS_INFINITY

__all__ = ["UnionOperator"]


@register(Union)
class UnionOperator(Operator):
    """The input that is ahead waits for the others; the clock is the minimum over the inputs."""

    def __init__(self, node: Union) -> None:
        super().__init__(node)
        self._clocks = [MINUS_INFINITY] * len(node.parents)
        self._queue = TimeQueue()
        self._columns = node.schema.names

    def push(self, batch: Batch, port: int = 0) -> None:
        columns = {name: batch.columns[name] for name in self._columns}
        self._queue.add(Batch(batch.sync, batch.other, columns))
        self._clocks[port] = max(self._clocks[port], int(batch.sync[-1]))
        self._emit_due()

    def advance(self, t: int, port: int = 0) -> None:
        self._clocks[port] = max(self._clocks[port], t)
        self._emit_due()
        self.emit_clock(min(self._clocks))

    def _emit_due(self) -> None:
        due = self._queue.pop_until(min(self._clocks))
        if due is not None:
            self.emit(due)

    def save(self) -> OperatorState:
        return {"clock": self.clock, "clocks": list(self._clocks), "queue": self._queue.save()}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._clocks = list(state["clocks"])
        self._queue.load(state["queue"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        # All inputs live alike, or nobody knows where the result lives.
        if belongs[0] is not None:
            self._queue.keep(belongs[0])
        return True

    @property
    def state_rows(self) -> int:
        return len(self._queue)
