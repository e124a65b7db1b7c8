"""HoppingWindow: lifetimes on the grid, whatever size / hop is."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.kernels.lifetimes import hopping_lifetimes, hopping_starts
from squill.engine.operator import STARTS, Operator, register
from squill.engine.times import refuse_beginningless, time_overflow
from squill.plan.nodes import HoppingWindow
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["HoppingWindowOperator"]


@register(HoppingWindow)
class HoppingWindowOperator(Operator):
    """Original ends are ignored, so end edges are dropped; an event in no window (hop > size) vanishes."""

    demands = STARTS

    def __init__(self, node: HoppingWindow) -> None:
        super().__init__(node)
        self._window = (node.size, node.hop, node.offset % node.hop, node.closed == "right")
        self._may_end = not node.parent.properties.ends_known

    def push(self, batch: Batch, port: int = 0) -> None:
        if self._may_end:
            batch = batch.filter(batch.other > batch.sync)
        refuse_beginningless(batch.sync, self.node)
        size, hop, *_ = self._window
        start = np.empty(len(batch), np.int64)
        if size % hop == 0:
            self._check(batch, hopping_starts(batch.sync, *self._window, start))
            self.emit(batch.with_lifetimes(start, size))
        else:
            end = np.empty(len(batch), np.int64)
            self._check(batch, hopping_lifetimes(batch.sync, *self._window, start, end))
            result = batch.with_lifetimes(start, end)
            self.emit(result if hop <= size else result.filter(end > start))

    def _check(self, batch: Batch, row: int) -> None:
        """Refuse the first row whose window leaves the range of times; −1 is none."""
        if row >= 0:
            raise time_overflow(self.node, int(batch.sync[row]))

    def advance(self, t: int, port: int = 0) -> None:
        """The next event may start no earlier than t, so its window at g(t)."""
        if MINUS_INFINITY < t < INFINITY:
            _, hop, offset, is_right = self._window
            shifted = t - is_right
            self.emit_clock(min(shifted - (shifted - offset) % hop + hop, INFINITY - 1))
        else:
            self.emit_clock(t)
