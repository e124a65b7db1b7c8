"""PointAtEnd: each event becomes a point at its end."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.delay import DelayOperator
from squill.engine.operator import register
from squill.engine.times import shifted
from squill.plan.nodes import PointAtEnd
from squill.time import INFINITY

__all__ = ["PointAtEndOperator"]


@register(PointAtEnd)
class PointAtEndOperator(DelayOperator):
    """Intervals wait for their end; end edges are there already; endless events give nothing."""

    def map(self, batch: Batch) -> Batch:
        end = np.maximum(batch.sync, batch.other)
        finite = end != INFINITY
        rows = Batch(end, end, batch.columns).filter(finite)
        return Batch(rows.sync, shifted(rows.sync, 1, self.node), rows.columns)
