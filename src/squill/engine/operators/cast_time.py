"""CastTime: count time in another unit."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch, Int64s
from squill.engine.delay import DelayOperator
from squill.engine.operator import register
from squill.engine.times import time_overflow
from squill.plan.nodes import CastTime
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["CastTimeOperator"]


@register(CastTime)
class CastTimeOperator(DelayOperator):
    """Finer: both ends multiplied. Coarser: starts floored, ends raised, end edges wait until due."""

    def __init__(self, node: CastTime) -> None:
        super().__init__(node)
        self._multiply, self._divide = node.factor

    def map(self, batch: Batch) -> Batch:
        is_end = batch.other < batch.sync
        start = self._convert(np.minimum(batch.sync, batch.other), upwards=False)
        end = self._convert(np.maximum(batch.sync, batch.other), upwards=True)
        return Batch(np.where(is_end, end, start), np.where(is_end, start, end), batch.columns)

    def _convert(self, times: Int64s, *, upwards: bool) -> Int64s:
        infinite = (times == INFINITY) | (times == MINUS_INFINITY)
        if self._divide > 1:
            converted = -(-times // self._divide) if upwards else times // self._divide
        else:
            limit = (INFINITY - 1) // self._multiply
            bad = (np.abs(times) > limit) & ~infinite
            if bad.any():
                raise time_overflow(self.node, int(times[np.argmax(bad)]))
            converted = np.where(infinite, 0, times) * self._multiply
        return np.where(infinite, times, converted)

    def release(self, t: int) -> int:
        return self.output_clock(t)

    def output_clock(self, t: int) -> int:
        if not MINUS_INFINITY < t < INFINITY:
            return t
        return t * self._multiply // self._divide
