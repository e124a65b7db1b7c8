"""Quantize: grow lifetimes to the grid of windows they overlap."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.delay import DelayOperator
from squill.engine.kernels.lifetimes import quantized_lifetimes
from squill.engine.operator import register
from squill.engine.times import time_overflow
from squill.plan.nodes import Quantize
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["QuantizeOperator"]


@register(Quantize)
class QuantizeOperator(DelayOperator):
    """Starts snap down and leave at once; the end edges of start edges wait until they are due."""

    def __init__(self, node: Quantize) -> None:
        super().__init__(node)
        phase, end_phase = node.offset % node.period, (node.offset + node.size) % node.period
        self._offset, self._progress = node.offset, node.progress or node.period
        self._grid = (node.size, node.period, phase, end_phase, self._progress)

    def map(self, batch: Batch) -> Batch:
        start, end = np.minimum(batch.sync, batch.other), np.maximum(batch.sync, batch.other)
        new_start, new_end = np.empty_like(start), np.empty_like(end)
        row = quantized_lifetimes(start, end, *self._grid, new_start, new_end)
        if row >= 0:
            raise time_overflow(self.node, int(start[row]))
        is_end = batch.other < batch.sync
        return Batch(np.where(is_end, new_end, new_start), np.where(is_end, new_start, new_end), batch.columns)

    def release(self, t: int) -> int:
        return self.output_clock(t)

    def output_clock(self, t: int) -> int:
        if not MINUS_INFINITY < t < INFINITY:
            return t
        return max(t - (t - self._offset) % self._progress, MINUS_INFINITY)
