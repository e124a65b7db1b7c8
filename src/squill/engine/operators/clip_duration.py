"""ClipDuration: no event lives longer than a limit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch
from squill.engine.delay import CancellingDelayOperator
from squill.engine.operator import Operator, register
from squill.engine.times import refuse_beginningless, shifted, time_overflow
from squill.plan.nodes import ClipDuration
from squill.time import INFINITY

__all__ = ["ClipEdges", "ClipKnownEnds", "clip_operator"]


class ClipKnownEnds(Operator):
    """Every end is known on arrival: nothing waits."""

    def __init__(self, node: ClipDuration) -> None:
        super().__init__(node)
        self._limit = node.limit

    def push(self, batch: Batch, port: int = 0) -> None:
        refuse_beginningless(batch.sync, self.node)
        beyond = batch.sync > INFINITY - 1 - self._limit
        if beyond.any():
            self._refuse_endless(batch, beyond)
            latest = np.where(beyond, INFINITY, np.where(beyond, 0, batch.sync) + self._limit)
        else:
            latest = batch.sync + self._limit
        self.emit(Batch(batch.sync, np.minimum(batch.other, latest), batch.columns))

    def _refuse_endless(self, batch: Batch, beyond: npt.NDArray[np.bool_]) -> None:
        """A limit beyond the end of time clips nothing that ends; what never ends has no end to be given."""
        unlimited = beyond & (batch.other == INFINITY)
        if unlimited.any():
            raise time_overflow(self.node, int(batch.sync[np.argmax(unlimited)]))


class ClipEdges(CancellingDelayOperator):
    """A start edge puts its end edge at the limit into the queue; an earlier true end takes it back."""

    def __init__(self, node: ClipDuration) -> None:
        super().__init__(node)
        self._limit = node.limit

    def map(self, batch: Batch) -> Batch:
        refuse_beginningless(batch.sync, self.node)
        is_end = batch.other < batch.sync
        start = np.minimum(batch.sync, batch.other)
        latest = shifted(start, self._limit, self.node)
        is_start_edge = batch.other == INFINITY
        too_late = is_end & (batch.sync >= latest)
        early = is_end & ~too_late
        passed = Batch(
            batch.sync,
            np.where(is_end | is_start_edge, batch.other, np.minimum(batch.other, latest)),
            batch.columns,
        ).filter(~too_late)
        at_limit = Batch(latest, start, batch.columns)
        self._cancelled.add(at_limit.filter(early))
        return Batch.concat([passed, at_limit.filter(is_start_edge)])


@register(ClipDuration)
def clip_operator(node: ClipDuration) -> Operator:
    return ClipKnownEnds(node) if node.parent.properties.ends_known else ClipEdges(node)
