"""Early answers: rows that wait for stragglers run through a copy of the state, as if the sources ended here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.compile import Pipeline, compile_plan
from squill.engine.edges import row_keys
from squill.engine.egress_changes import ChangesSink, change_frame
from squill.engine.operator import OperatorState
from squill.plan.node import Node
from squill.plan.nodes import PushSource
from squill.time import INFINITY

__all__ = ["Speculation", "difference"]


class Speculation:
    """Remembers the early changes that were sent, so that the next ones are the difference.

    What has been sent is always final changes + early changes. Memory: the early changes, which are those of
    the rows that wait and of the state that is open.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._early: Batch | None = None

    def take(self, pipeline: Pipeline) -> pl.DataFrame | None:
        """Return the difference from what was sent before; None when there is none."""
        assert isinstance(pipeline.sink, ChangesSink)
        final = pipeline.sink.take_rows()
        early = self._look_ahead(pipeline)
        rows = difference([rows for rows in (final, early) if rows is not None], self._early)
        self._early = early
        return None if rows is None else change_frame(rows, self._node)

    def _look_ahead(self, pipeline: Pipeline) -> Batch | None:
        if pipeline.sink.completed:
            return None
        sink = ChangesSink(self._node)
        with compile_plan(self._node, sink) as ahead:
            ahead.load(pipeline.save())
            for source, entry in ahead.entries:
                if isinstance(source, PushSource):
                    rows = source.source.waiting_rows()
                    if rows is not None:
                        entry.push(rows)
                    entry.advance(INFINITY)
        return sink.take_rows()

    def save(self) -> OperatorState:
        return {"early": [] if self._early is None else [self._early]}

    def load(self, state: OperatorState) -> None:
        self._early = next(iter(state["early"]), None)


def difference(changes: Sequence[Batch], before: Batch | None) -> Batch | None:
    """Return what makes of an answer with the early changes `before` the one with these changes; None is nothing."""
    taken_back = [] if before is None else [before.with_times(before.sync, -before.other)]
    parts = [*changes, *taken_back]
    rows = summed(Batch.concat(parts)) if parts else None
    return rows if rows is not None and len(rows) else None


def summed(changes: Batch) -> Batch:
    """Return changes in order, without those that cancel out; one row for each event that begins or ends."""
    keys = row_keys(Batch(changes.sync, changes.sync, changes.columns))
    totals = (
        pl.DataFrame({"key": keys, "diff": changes.other})
        .with_row_index("row")
        .group_by("key", maintain_order=True)
        .agg(pl.col("row").first(), pl.col("diff").sum())
        .filter(pl.col("diff") != 0)
    )
    diffs = totals["diff"].to_numpy()
    times = np.abs(diffs)
    rows = changes.take(np.repeat(totals["row"].to_numpy().astype(np.int64), times))
    signs = np.repeat(np.sign(diffs), times)
    return rows.with_times(rows.sync, signs).take(np.lexsort((signs, rows.sync)))
