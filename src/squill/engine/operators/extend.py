"""Extend: move ends, later or earlier."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.delay import CancellingDelayOperator, DelayOperator
from squill.engine.operator import Operator, register
from squill.engine.times import shift_time, shifted
from squill.plan.nodes import Extend
from squill.time import INFINITY

__all__ = ["ExtendKnownEnds", "ExtendLater", "ExtendSooner", "extend_operator"]


class ExtendKnownEnds(Operator):
    """Every end is known on arrival: nothing waits."""

    def __init__(self, node: Extend) -> None:
        super().__init__(node)
        self._by = node.by

    def push(self, batch: Batch, port: int = 0) -> None:
        other = shifted(batch.other, self._by, self.node)
        result = Batch(batch.sync, other, batch.columns)
        self.emit(result if self._by >= 0 else result.filter(other > batch.sync))


class ExtendLater(DelayOperator):
    """End edges are delayed."""

    def __init__(self, node: Extend) -> None:
        super().__init__(node)
        self._by = node.by

    def map(self, batch: Batch) -> Batch:
        is_end = batch.other < batch.sync
        later = shifted(np.where(is_end, batch.sync, batch.other), self._by, self.node)
        return Batch(np.where(is_end, later, batch.sync), np.where(is_end, batch.other, later), batch.columns)


class ExtendSooner(CancellingDelayOperator):
    """Ends move back, so starts must wait as long: an event that would be over before it starts vanishes.

    Its end edge then cancels the start that waits.
    """

    def __init__(self, node: Extend) -> None:
        super().__init__(node)
        self._by = node.by

    def release(self, t: int) -> int:
        # An end at t still cancels the start at t + by, so that start may not leave yet.
        return t if t == INFINITY else shift_time(t, self._by - 1)

    def output_clock(self, t: int) -> int:
        return shift_time(t, self._by)

    def map(self, batch: Batch) -> Batch:
        is_end = batch.other < batch.sync
        sooner = shifted(np.where(is_end, batch.sync, batch.other), self._by, self.node)
        sync = np.where(is_end, sooner, batch.sync)
        other = np.where(is_end, batch.other, sooner)
        vanishing = is_end & (sync <= other)
        if vanishing.any():
            start_edges = Batch(other, np.full(len(batch), INFINITY), batch.columns)
            self._cancelled.add(start_edges.filter(vanishing))
        lives = np.where(is_end, sync > other, other > sync)
        return Batch(sync, other, batch.columns).filter(lives)


@register(Extend)
def extend_operator(node: Extend) -> Operator:
    if node.parent.properties.ends_known:
        return ExtendKnownEnds(node)
    return ExtendLater(node) if node.by >= 0 else ExtendSooner(node)
