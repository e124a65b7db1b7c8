"""EachStep: a query over time, run on the rows of one step after the other.

No operator of the query looks at rows of different steps (`plan/apart.py`), so that the answer at a progress point is
the union of the answers over the rows of each step up to it, and what a step brings is just its own answer. The query
is run on it from beginning to end, by the same operators as everywhere, once all rows of the step are there. Nothing of
a step is kept when it is over, but the rows of inputs of which every step has all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from squill.engine.batch import Batch, endless, repeated
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.ingress import cut
from squill.engine.operator import Operator, OperatorState, register
from squill.engine.progress.timed import carrying, lasting
from squill.engine.run import default_rows, steps
from squill.plan.nodes import Source
from squill.plan.nodes.progress import EachStep
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["EachStepOperator"]


@register(EachStep)
class EachStepOperator(Operator):
    """A step is over when the clocks of all inputs are past it.

    Memory: the rows of one step, and those that every step has.
    """

    def __init__(self, node: EachStep) -> None:
        super().__init__(node)
        self._root = node.query.root
        self._shows = node.shows
        self._in_steps = [port for port in range(len(node.parents)) if port not in node.query.whole]
        self._clocks = [MINUS_INFINITY] * len(node.parents)
        self._waiting: list[list[Batch]] = [[] for _ in node.parents]
        self._prepared: dict[int, Batch] = {}

    def push(self, batch: Batch, port: int = 0) -> None:
        self._waiting[port].append(batch)

    def advance(self, t: int, port: int = 0) -> None:
        self._clocks[port] = max(self._clocks[port], t)
        reached = min(self._clocks)
        if self._in_steps:
            self._answer_before(reached)
        elif reached < INFINITY:
            return  # what every step has is told at once
        elif not self.completed:
            self._answer(max((int(rows.sync[-1]) for rows in self._held()), default=0), {})
        self.emit_clock(reached)

    def _held(self) -> list[Batch]:
        return [rows for batches in self._waiting for rows in batches]

    def _answer_before(self, t: int) -> None:
        """Answer the steps before `t`."""
        due = {port: self._take_before(port, t) for port in self._in_steps}
        points = [np.unique(batch.sync) for batches in due.values() for batch in batches]
        for point in np.unique(np.concatenate(points)).tolist() if points else ():
            self._answer(point, {port: _at(batches, point) for port, batches in due.items()})

    def _take_before(self, port: int, t: int) -> list[Batch]:
        batches = self._waiting[port]
        if not batches or batches[0].sync[0] >= t:
            return []
        ends = [int(np.searchsorted(batch.sync, t)) for batch in batches]
        parts = list(zip(batches, ends, strict=True))
        self._waiting[port] = [batch.slice(end, len(batch)) for batch, end in parts if end < len(batch)]
        return [batch.slice(0, end) for batch, end in parts if end]

    def _answer(self, point: int, of_step: Mapping[int, Sequence[Batch]]) -> None:
        sink = CollectSink(self._root)
        size = default_rows(self._root)
        with compile_plan(self._root, sink) as pipeline:
            rows = [
                _of_query(source, of_step[port]) if port in of_step else self._all_rows(port, source)
                for port, (source, _) in enumerate(pipeline.entries)
            ]
            feeds = [(cut(batch, size), entry) for batch, (_, entry) in zip(rows, pipeline.entries, strict=True)]
            for _ in steps(feeds, clocks=True):
                pass
        self.emit(self._told(point, sink))

    def _all_rows(self, port: int, source: Source) -> Batch:
        """Return the rows that every step has; all of them have come before the first is over."""
        if port not in self._prepared:
            self._prepared[port] = _of_query(source, self._waiting[port])
        return self._prepared[port]

    def _told(self, point: int, sink: CollectSink) -> Batch:
        """Return what the query gives, from the step on."""
        if self._shows:
            frame = sink.frame()
            columns = {series.name: series.rechunk() for series in frame.get_columns()}
            return Batch(repeated(point, frame.height), endless(frame.height), columns)
        rows = sink.rows()
        points = repeated(point, len(rows))
        if self._root.time is None:
            return Batch(points, endless(len(rows)), rows.columns)
        return carrying(rows, points, tuple(self._root.schema))

    def save(self) -> OperatorState:
        return {"clock": self.clock, "clocks": list(self._clocks), "waiting": [list(item) for item in self._waiting]}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._clocks = list(state["clocks"])
        self._waiting = [list(item) for item in state["waiting"]]
        self._prepared = {}

    @property
    def state_rows(self) -> int:
        return sum(map(len, self._held()))


def _at(batches: Sequence[Batch], point: int) -> list[Batch]:
    bounds = [np.searchsorted(batch.sync, [point, point + 1]).tolist() for batch in batches]
    return [batch.slice(low, high) for batch, (low, high) in zip(batches, bounds, strict=True) if low < high]


def _of_query(source: Source, batches: Sequence[Batch]) -> Batch:
    """Return rows as the query has them."""
    if not batches:
        return Batch.empty(dict(source.schema))
    rows = Batch.concat(batches)
    return lasting(rows) if source.time is not None else Batch.relational(rows.columns, len(rows))
