"""Aggregates of a column that has no type of its own: all its values are null."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from squill.engine.aggregation.folds import Array, Fold, FoldContext
from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.operator import OperatorState
from squill.plan.aggregates import BoundAggregate

__all__ = ["NullFold"]


class NullFold(Fold):
    """The aggregate of no values at all: 0 for sums and counts, else null."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.inputs = ()

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        return []

    def ensure_slots(self, capacity: int) -> None:
        pass

    def keep_slots(self, kept: Array) -> None:
        pass

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        value = 0 if self.call.kind in ("sum", "count_distinct") else None
        nothing = pl.Series(self.call.placeholder, [value], self.call.dtype)
        return nothing.new_from_index(0, deltas.cells)

    def save(self) -> OperatorState:
        return {}

    def load(self, state: OperatorState) -> None:
        pass
