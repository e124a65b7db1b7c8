"""The progress points of rows that one shard of several writes: they are numbered as they come.

The shard's rows are a split: row j of shard s of S is number j·S + s, as no shard knows how many rows the others have.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.buffers import grown
from squill.engine.keyed import KeySlots
from squill.engine.progress.points import Piece, points_of
from squill.engine.progress.round_robin import fraction_steps
from squill.plan.assignment import Assignment, Fractions, Stratified
from squill.plan.node import Node
from squill.plan.nodes import FrameSource
from squill.plan.nodes.progress import NumberedPart, ProgressSource

__all__ = ["WrittenSteps"]


class WrittenSteps:
    """Gives rows their progress points, in the order in which they come.

    Of which fraction a row is can be told once all are there: until then its place stands for its point, which is in
    the same order, and `final` makes points of places.
    """

    def __init__(
        self, assignment: Assignment, node: Node, shard: int, shards: int, inputs: tuple[str, ...] = ()
    ) -> None:
        self._assignment = assignment
        self._where = _named(inputs)
        rows = node.schema.empty_frame()
        nothing = FrameSource(label="to_storage", columns=node.schema, lifetime=None, frame=rows, frame_id=id(rows))
        self._source = ProgressSource(
            label="to_storage",
            columns=node.schema,
            lifetime=None,
            source=nothing,
            assignment=assignment,
            splits=shards,
        )
        self._part = NumberedPart(shard)
        self._rows = 0
        is_counted = isinstance(assignment, Stratified)
        self._strata = KeySlots(assignment.key, node.schema) if is_counted else None  # type: ignore[attr-defined]
        self._seen = np.zeros(16, np.int64)

    def next(self, columns: Mapping[str, pl.Series], size: int) -> tuple[Int64s, Int64s | None]:
        """Return the first points of the rows that come next, and their ends if they have any."""
        piece = Piece(self._source, self._part, self._rows, size, columns, where=self._where)
        self._rows += size
        if isinstance(self._assignment, Fractions):
            return piece.rows, None
        if isinstance(self._assignment, Stratified):
            return self._next_of_keys(columns, size) // self._assignment.k, None
        return points_of(piece)

    def _next_of_keys(self, columns: Mapping[str, pl.Series], size: int) -> Int64s:
        """Return how many rows of its key came before each row."""
        assert self._strata is not None
        slots = self._strata.slots(Batch.relational(dict(columns), size))
        self._seen = grown(self._seen, self._strata.capacity)
        order = np.argsort(slots, kind="stable")
        in_order = slots[order]
        begins = np.searchsorted(in_order, in_order)
        before = np.empty(size, np.int64)
        before[order] = self._seen[in_order] + np.arange(size) - begins
        self._seen += np.bincount(slots, minlength=len(self._seen))
        return before

    def final(self, points: Int64s) -> Int64s:
        """Return the points of rows, once all have come."""
        if not isinstance(self._assignment, Fractions):
            return points
        return fraction_steps(points, self._rows, self._assignment.n, self._part.split, self._source.splits)


def _named(inputs: tuple[str, ...]) -> str:
    """Return whose rows are written: what users know are the names of their inputs."""
    if len(inputs) == 1:
        return f"input {inputs[0]!r}"
    return f"the answer from {' and '.join(map(repr, inputs))}" if inputs else "the answer"
