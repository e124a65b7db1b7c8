"""Quantize: grow lifetimes to the grid of windows they overlap."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.delay import DelayOperator
from squill.engine.kernels.lifetimes import quantized_lifetimes
from squill.engine.operator import register
from squill.engine.times import leaves_no_time, time_overflow
from squill.plan.nodes import Quantize
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["QuantizeOperator"]


@register(Quantize)
class QuantizeOperator(DelayOperator):
    """Starts snap down and leave at once; the end edges of start edges wait until they are due."""

    def __init__(self, node: Quantize) -> None:
        super().__init__(node)
        # The same grid by an offset below zero, to which no size can be too much.
        offset = node.offset % node.period - node.period
        self._grid = (node.size, node.period, offset, node.progress or node.period)
        self._fits_nowhere = leaves_no_time(node.size, node.period)

    def map(self, batch: Batch) -> Batch:
        start, end = np.minimum(batch.sync, batch.other), np.maximum(batch.sync, batch.other)
        new_start, new_end = np.empty_like(start), np.empty_like(end)
        fits_nowhere = self._fits_nowhere and len(batch)
        row = 0 if fits_nowhere else quantized_lifetimes(start, end, *self._grid, new_start, new_end)
        if row >= 0:
            raise time_overflow(self.node, int(start[row]))
        is_end = batch.other < batch.sync
        return Batch(np.where(is_end, new_end, new_start), np.where(is_end, new_start, new_end), batch.columns)

    def release(self, t: int) -> int:
        return self.output_clock(t)

    def output_clock(self, t: int) -> int:
        if not MINUS_INFINITY < t < INFINITY:
            return t
        _, _, offset, progress = self._grid
        return t - (t - offset) % progress
