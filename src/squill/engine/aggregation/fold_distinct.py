"""Fold: count_distinct."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from squill.engine.aggregation.fold_nulls import NullFold
from squill.engine.aggregation.fold_sums import delta_arguments
from squill.engine.aggregation.folds import Array, Fold, FoldContext, register_fold
from squill.engine.aggregation.interned import Interned
from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots, renumbering
from squill.engine.buffers import grown
from squill.engine.columns import read_only, series_from, valid_of
from squill.engine.hashing import supports
from squill.engine.kernels import fold_distinct as kernels
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.engine.row_order import as_binary, encode_rows
from squill.plan.aggregates import BoundAggregate

__all__ = ["DistinctFold"]


class DistinctFold(Fold):
    """count_distinct(x): an id for each (slot, value) pair, and how many rows hold it."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.columns = (np.dtype(np.int64),)
        self._dtype = call.inputs[0].dtype
        self._pairs = Interned(pl.Int32(), self._dtype if supports(self._dtype) else pl.Binary())
        self._counts = np.zeros(16, np.int64)

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        values, valid = inputs[0], valid_of(inputs[0])
        there = values.null_count() < len(values)
        pairs = np.zeros(len(values), np.int64)
        if there:
            mask = valid.view(np.bool_)
            if values.null_count():
                values, slots = values.drop_nulls(), slots[mask]
            if not supports(self._dtype):
                values = as_binary(*encode_rows([values]))
            pairs[mask] = self._pairs.ids(series_from("", slots, None, pl.Int32()), values)
        return [(pairs, valid)]

    def ensure_slots(self, capacity: int) -> None:
        self._counts = grown(self._counts, capacity)

    def keep_slots(self, kept: Array) -> Array | None:
        capacity = self._pairs.table.capacity
        pairs = self._pairs.table.keep_under(renumbering(kept, len(self._counts)))
        self._pairs.references = at_slots(self._pairs.references, pairs)
        self._counts = at_slots(self._counts, kept)
        return renumbering(pairs, capacity)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        out = np.empty(deltas.cells, np.int64)
        released = np.empty(deltas.count, np.int64)
        count = kernels.fold_distinct(
            *delta_arguments(deltas), *map(read_only, columns[0]), self._pairs.references, self._counts, released, out
        )
        self._pairs.note(released[:count])
        return series_from(self.call.placeholder, out, None, pl.Int64())

    def settle(self) -> None:
        self._pairs.settle()

    def save(self) -> OperatorState:
        return {"pairs": self._pairs.save(), "counts": self._counts}

    def load(self, state: OperatorState) -> None:
        self._pairs.load(state["pairs"])
        self._counts = owned(state["counts"])


@register_fold("count_distinct")
def distinct_fold(call: BoundAggregate, context: FoldContext) -> Fold:
    return (NullFold if isinstance(call.inputs[0].dtype, pl.Null) else DistinctFold)(call, context)
