"""Folds: product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from squill.engine.aggregation.fold_nulls import NullFold
from squill.engine.aggregation.fold_sums import delta_arguments
from squill.engine.aggregation.folds import Array, Fold, FoldContext, register_fold
from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots
from squill.engine.buffers import grown
from squill.engine.columns import as_float64, as_int64, read_only, series_from
from squill.engine.kernels import fold_products as kernels
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.errors import NumericOverflowError
from squill.plan.aggregates import BoundAggregate

__all__ = ["FloatProductFold", "IntegerProductFold"]


class FloatProductFold(Fold):
    """product(x) of floats."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.columns = (np.dtype(np.float64),)
        self._state = np.zeros((16, kernels.FLOAT_STATE), np.float64)

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        return [as_float64(inputs[0])]

    def ensure_slots(self, capacity: int) -> None:
        self._state = grown(self._state, capacity)

    def keep_slots(self, kept: Array) -> None:
        self._state = at_slots(self._state, kept)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        out, valid = np.empty(deltas.cells), np.empty(deltas.cells, np.uint8)
        kernels.fold_float_product(*delta_arguments(deltas), *map(read_only, columns[0]), self._state, out, valid)
        return series_from(self.call.placeholder, out, valid, pl.Float64())

    def save(self) -> OperatorState:
        return {"state": self._state}

    def load(self, state: OperatorState) -> None:
        self._state = owned(state["state"])


class IntegerProductFold(FloatProductFold):
    """product(x) of integers and Booleans: exact, refused when a snapshot's product leaves 64 bits."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.columns = (np.dtype(np.int64),)
        self._exact = np.zeros((16, kernels.EXACT_STATE), np.int64)
        self._unsigned = call.inputs[0].dtype == pl.UInt64()

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        return [as_int64(inputs[0])]

    def ensure_slots(self, capacity: int) -> None:
        super().ensure_slots(capacity)
        self._exact = grown(self._exact, capacity)

    def keep_slots(self, kept: Array) -> None:
        super().keep_slots(kept)
        self._exact = at_slots(self._exact, kept)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        out, valid = np.empty(deltas.cells, np.int64), np.empty(deltas.cells, np.uint8)
        overflow = kernels.fold_integer_product(
            *delta_arguments(deltas), *map(read_only, columns[0]), self._unsigned,
            self._state, self._exact, out, valid,
        )  # fmt: skip
        if overflow >= 0:
            raise NumericOverflowError(
                f"aggregate {self.call}: the product leaves the 64-bit range{self.at(deltas.cell_time[overflow])}",
                "multiply a Float64 instead: sq.product(sq.col('x').cast(pl.Float64)).",
            )
        return series_from(self.call.placeholder, out, valid, pl.Int64())

    def save(self) -> OperatorState:
        return {**super().save(), "exact": self._exact}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._exact = owned(state["exact"])


@register_fold("product")
def product_fold(call: BoundAggregate, context: FoldContext) -> Fold:
    dtype = call.inputs[0].dtype
    if isinstance(dtype, pl.Null):
        return NullFold(call, context)
    return (FloatProductFold if dtype.is_float() else IntegerProductFold)(call, context)
