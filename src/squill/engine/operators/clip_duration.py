"""ClipDuration: no event lives longer than a limit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch, Int64s
from squill.engine.delay import CancellingDelayOperator
from squill.engine.operator import Operator, OperatorState, register
from squill.engine.owned import owned
from squill.engine.times import refuse_beginningless, time_overflow
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
        latest, beyond = _latest(batch.sync, self._limit)
        unlimited = beyond & (batch.other == INFINITY)
        if unlimited.any():
            raise time_overflow(self.node, int(batch.sync[np.argmax(unlimited)]))
        self.emit(Batch(batch.sync, np.minimum(batch.other, latest), batch.columns))


class ClipEdges(CancellingDelayOperator):
    """A start edge puts its end edge at the limit into the queue; an earlier true end takes it back.

    State beside the queue: the starts of the open events whose limit is beyond the end of time, in order.
    """

    def __init__(self, node: ClipDuration) -> None:
        super().__init__(node)
        self._limit = node.limit
        self._unlimited = np.empty(0, np.int64)

    def map(self, batch: Batch) -> Batch:
        refuse_beginningless(batch.sync, self.node)
        is_end = batch.other < batch.sync
        start = np.minimum(batch.sync, batch.other)
        latest, beyond = _latest(start, self._limit)
        is_start_edge = batch.other == INFINITY
        if beyond.any():
            self._follow(start[beyond & is_start_edge], start[beyond & is_end])
        too_late = is_end & (batch.sync >= latest)
        early = is_end & ~too_late & ~beyond
        passed = Batch(
            batch.sync,
            np.where(is_end | is_start_edge, batch.other, np.minimum(batch.other, latest)),
            batch.columns,
        ).filter(~too_late)
        at_limit = Batch(latest, start, batch.columns)
        self._cancelled.add(at_limit.filter(early))
        return Batch.concat([passed, at_limit.filter(is_start_edge & ~beyond)])

    def _follow(self, begun: Int64s, ended: Int64s) -> None:
        is_open = np.sort(np.concatenate([self._unlimited, begun]))
        ended = np.sort(ended)
        among_equals = np.arange(len(ended)) - np.searchsorted(ended, ended)
        self._unlimited = np.delete(is_open, np.searchsorted(is_open, ended) + among_equals)

    def advance(self, t: int, port: int = 0) -> None:
        if t == INFINITY and len(self._unlimited):
            raise time_overflow(self.node, int(self._unlimited[0]))
        super().advance(t, port)

    def save(self) -> OperatorState:
        return {**super().save(), "unlimited": self._unlimited}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._unlimited = owned(state["unlimited"])


def _latest(starts: Int64s, limit: int) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Return the latest end of events, and where that is beyond the end of time (then infinity).

    Such a limit clips nothing that ends; what never ends has no end to be given.
    """
    beyond = starts > INFINITY - 1 - limit
    if not beyond.any():
        return starts + limit, beyond
    return np.where(beyond, INFINITY, np.where(beyond, 0, starts) + limit), beyond


@register(ClipDuration)
def clip_operator(node: ClipDuration) -> Operator:
    return ClipKnownEnds(node) if node.parent.properties.ends_known else ClipEdges(node)
