"""Folds over sums: count, count_not_null, sum, mean, var, std."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from squill.engine.aggregation.fold_nulls import NullFold
from squill.engine.aggregation.folds import Array, Fold, FoldContext, register_fold
from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots
from squill.engine.buffers import grown
from squill.engine.columns import as_float64, as_int64, decimal_limbs, read_only, series_from, valid_of
from squill.engine.kernels import fold_sums as kernels
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.errors import NumericOverflowError
from squill.plan.aggregates import BoundAggregate

__all__ = [
    "CountFold", "DecimalSumFold", "FloatSumFold", "IntegerSumFold", "NarrowSumFold", "RowCountFold", "VarianceFold",
    "WideSumFold", "delta_arguments",
]  # fmt: skip

NO_RESTS = read_only(np.empty(0))


def delta_arguments(deltas: Deltas) -> tuple[object, ...]:
    """The arguments that every fold kernel begins with."""
    return (
        deltas.slot, deltas.sign, deltas.row, deltas.count, deltas.instant_delta, deltas.instant_cell,
        deltas.instants, deltas.cell_slot, deltas.cell_alive,
    )  # fmt: skip


NOTHING = pl.Series("nothing", [], pl.Int64)


class RowCountFold(Fold):
    """count(): the schedule counts the alive rows anyway."""

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        return []

    def ensure_slots(self, capacity: int) -> None:
        pass

    def keep_slots(self, kept: Array) -> None:
        pass

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        if not deltas.cells:
            # Most small pushes finish no instant.
            return NOTHING
        return series_from(self.call.placeholder, deltas.cell_alive[: deltas.cells].copy(), None, pl.Int64())

    def save(self) -> OperatorState:
        return {}

    def load(self, state: OperatorState) -> None:
        pass


class CountFold(Fold):
    """count_not_null(x), and count(where=…)."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.columns = (np.dtype(np.uint8),)
        self._counts = np.zeros(16, np.int64)

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        valid = valid_of(inputs[0])
        return [(valid, valid)]

    def ensure_slots(self, capacity: int) -> None:
        self._counts = grown(self._counts, capacity)

    def keep_slots(self, kept: Array) -> None:
        self._counts = at_slots(self._counts, kept)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        out = np.empty(deltas.cells, np.int64)
        kernels.fold_count(*delta_arguments(deltas), columns[0][1], self._counts, out)
        return series_from(self.call.placeholder, out, None, pl.Int64())

    def save(self) -> OperatorState:
        return {"counts": self._counts}

    def load(self, state: OperatorState) -> None:
        self._counts = owned(state["counts"])


class IntegerSumFold(Fold):
    """sum(x) of integers, Booleans and Durations: exact, refused when a snapshot's sum leaves 64 bits."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.columns = (np.dtype(np.int64),)
        self._sums = np.zeros((16, 2), np.int64)
        self._unsigned = call.inputs[0].dtype == pl.UInt64()

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        return [as_int64(inputs[0])]

    def ensure_slots(self, capacity: int) -> None:
        self._sums = grown(self._sums, capacity)

    def keep_slots(self, kept: Array) -> None:
        self._sums = at_slots(self._sums, kept)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        out = np.empty(deltas.cells, np.int64)
        values, valid = columns[0]
        overflow = kernels.fold_integer_sum(*delta_arguments(deltas), values, valid, self._unsigned, self._sums, out)
        if overflow >= 0:
            raise NumericOverflowError(
                f"aggregate {self.call}: the sum leaves the 64-bit range{self.at(deltas.cell_time[overflow])}",
                "sum a Float64 or a Decimal instead: sq.sum(sq.col('x').cast(pl.Float64)).",
            )
        return series_from(self.call.placeholder, out, None, self.call.dtype)

    def save(self) -> OperatorState:
        return {"sums": self._sums}

    def load(self, state: OperatorState) -> None:
        self._sums = owned(state["sums"])


class DecimalSumFold(Fold):
    """sum(x) of Decimals: exact, refused when a snapshot's sum has more than 38 digits."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.columns = (np.dtype(np.int64), np.dtype(np.int64))
        self._sums = np.zeros((16, 3), np.int64)

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        high, low, valid = decimal_limbs(inputs[0])
        return [(high, valid), (low, valid)]

    def ensure_slots(self, capacity: int) -> None:
        self._sums = grown(self._sums, capacity)

    def keep_slots(self, kept: Array) -> None:
        self._sums = at_slots(self._sums, kept)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        return series_from(self.call.placeholder, self._limbs(deltas, columns), None, self.call.dtype)

    def _limbs(self, deltas: Deltas, columns: Sequence[Column]) -> tuple[Array, Array]:
        """Return the sums as two words each, the upper ones first."""
        high, low = np.empty(deltas.cells, np.int64), np.empty(deltas.cells, np.int64)
        (highs, valid), (lows, _) = columns
        overflow = kernels.fold_decimal_sum(
            *delta_arguments(deltas), *map(read_only, (highs, lows, valid)), self._sums, high, low
        )
        if overflow >= 0:
            raise NumericOverflowError(
                f"aggregate {self.call}: the sum has more than 38 digits{self.at(deltas.cell_time[overflow])}",
                "sum a Float64 instead: sq.sum(sq.col('x').cast(pl.Float64)).",
            )
        return high, low

    def save(self) -> OperatorState:
        return {"sums": self._sums}

    def load(self, state: OperatorState) -> None:
        self._sums = owned(state["sums"])


class WideSumFold(DecimalSumFold):
    """sum(x, wide=True) of integers and Durations, as a Decimal: what some shards find may leave 64 bits."""

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        values, valid = as_int64(inputs[0])
        signs = np.zeros_like(values) if isinstance(inputs[0].dtype, pl.UInt64) else values >> 63
        return [(signs, valid), (values, valid)]


class NarrowSumFold(DecimalSumFold):
    """sum(x, narrow=True) of such Decimals, in 64 bits: refused when a snapshot's sum leaves them."""

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        high, low = self._limbs(deltas, columns)
        outside = high != low >> 63
        if outside.any():
            raise NumericOverflowError(
                f"aggregate {self.call}: the sum leaves the 64-bit range{self.at(deltas.cell_time[outside.argmax()])}",
                "sum a Float64 or a Decimal instead: sq.sum(sq.col('x').cast(pl.Float64)).",
            )
        return series_from(self.call.placeholder, low, None, self.call.dtype)


class FloatSumFold(Fold):
    """sum(x) of floats and mean(x) of any number, in double-double.

    Integers of 64 bits and Decimals are stored as two floats each, so that nothing is lost on the way in.
    """

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        dtype = call.inputs[0].dtype
        self._is_wide = isinstance(dtype, (pl.Int64, pl.UInt64, pl.Decimal))
        self._scale = 10.0**dtype.scale if isinstance(dtype, pl.Decimal) else 1.0
        self.columns = (np.dtype(np.float64),) * (2 if self._is_wide else 1)
        self._sums = np.zeros((16, kernels.FLOAT_STATE), np.float64)
        self._mode = kernels.MEAN if call.kind == "mean" else kernels.SUM

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        return _pairs(inputs[0]) if self._is_wide else [as_float64(inputs[0])]

    def ensure_slots(self, capacity: int) -> None:
        self._sums = grown(self._sums, capacity)

    def keep_slots(self, kept: Array) -> None:
        self._sums = at_slots(self._sums, kept)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        out, valid = np.empty(deltas.cells), np.empty(deltas.cells, np.uint8)
        self._fold(deltas, (*columns[0], columns[1][0] if self._is_wide else NO_RESTS), out, valid)
        return series_from(self.call.placeholder, out, None if valid.all() else valid, pl.Float64())

    def _fold(self, deltas: Deltas, values: Sequence[Array], out: Array, valid: Array) -> None:
        kernels.fold_float_sum(
            *delta_arguments(deltas), *map(read_only, values), self._scale, self._mode, self._sums, out, valid
        )

    def save(self) -> OperatorState:
        return {"sums": self._sums}

    def load(self, state: OperatorState) -> None:
        self._sums = owned(state["sums"])


def _pairs(values: pl.Series) -> list[Column]:
    """Return numbers that one float cannot hold as two floats each."""
    high, low = np.empty(len(values)), np.empty(len(values))
    if isinstance(values.dtype, pl.Decimal):
        *limbs, valid = decimal_limbs(values)
        kernels.decimal_pairs(*limbs, high, low)
    else:
        words, valid = as_int64(values)
        kernels.integer_pairs(words, isinstance(values.dtype, pl.UInt64), high, low)
    return [(high, valid), (low, valid)]


class VarianceFold(FloatSumFold):
    """var(x) and std(x)."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self._sums = np.zeros((16, kernels.VARIANCE_STATE), np.float64)

    def _fold(self, deltas: Deltas, values: Sequence[Array], out: Array, valid: Array) -> None:
        ddof, root = float(self.call.option("ddof")), self.call.kind == "std"
        kernels.fold_variance(
            *delta_arguments(deltas), *map(read_only, values), self._scale, ddof, root, self._sums, out, valid
        )


@register_fold("count")
def count_fold(call: BoundAggregate, context: FoldContext) -> Fold:
    return RowCountFold(call, context) if call.where is None else CountFold(call, context)


register_fold("count_not_null")(CountFold)


@register_fold("sum", "mean", "var", "std")
def sum_fold(call: BoundAggregate, context: FoldContext) -> Fold:
    dtype = call.inputs[0].dtype
    if isinstance(dtype, pl.Null):
        return NullFold(call, context)
    if call.kind != "sum":
        return (FloatSumFold if call.kind == "mean" else VarianceFold)(call, context)
    if isinstance(dtype, pl.Decimal):
        return (NarrowSumFold if call.has_option("narrow") else DecimalSumFold)(call, context)
    if call.has_option("wide"):
        return WideSumFold(call, context)
    return (FloatSumFold if dtype.is_float() else IntegerSumFold)(call, context)
