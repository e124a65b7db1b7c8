"""Shift: move both ends of each lifetime."""

from __future__ import annotations

from squill.engine.batch import Batch
from squill.engine.operator import EDGES, Operator, register
from squill.engine.times import shift_time, shifted
from squill.plan.nodes import Shift

__all__ = ["ShiftOperator"]


@register(Shift)
class ShiftOperator(Operator):
    """Order is kept, so nothing waits; the clock moves along."""

    demands = EDGES

    def __init__(self, node: Shift) -> None:
        super().__init__(node)
        self._by = node.by

    def push(self, batch: Batch, port: int = 0) -> None:
        sync, other = shifted(batch.sync, self._by, self.node), shifted(batch.other, self._by, self.node)
        self.emit(batch.with_lifetimes(sync, other))

    def advance(self, t: int, port: int = 0) -> None:
        self.emit_clock(shift_time(t, self._by))
