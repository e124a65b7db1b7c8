"""Folds whose value is a list of rows: collect_list and top_k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from squill.engine.aggregation.fold_codes import RowCodes, list_series
from squill.engine.aggregation.fold_ranks import (
    CodeMultisets,
    absent_value,
    kept_rows,
    rows_in_order,
    take_rows,
)
from squill.engine.aggregation.folds import Array, Fold, FoldContext, register_fold
from squill.engine.aggregation.interned import Interned
from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.columns import framed, series_from, valid_of, values_and_valid_of
from squill.engine.kernels import fold_order as kernels
from squill.engine.operator import OperatorState
from squill.plan.aggregates import BoundAggregate

__all__ = ["CollectListFold", "RowLists", "TopFold", "best_rows"]

ALL = -1
INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
MANY = 4
"""So many times as many rows as are listed make it worth to look for the best of them first."""
PIECE = 1 << 20
"""How many listed codes one piece of an answer has at most, unless one list alone is longer."""


class RowLists:
    """The codes of the rows alive in each slot, read as lists."""

    def __init__(self, interned: Interned) -> None:
        self._multisets = CodeMultisets(interned)
        interned.holders.append(self._multisets)

    def ensure_slots(self, capacity: int) -> None:
        self._multisets.ensure_slots(capacity)

    def run(
        self, deltas: Deltas, column: Column, call: object, prefixes: Array, limit: int = ALL
    ) -> Iterator[tuple[int, Array, Array]]:
        """Apply the deltas; yield pieces (first cell, offsets, codes) that cover the finished cells in order.

        `call` names, in an error, what the lists are for.
        """
        arguments = self._multisets.arguments(deltas, column, across_instants=False)
        progress = np.zeros(kernels.PROGRESS_SIZE, np.int64)
        offsets = np.zeros(deltas.cells + 1, np.int64)
        out = np.empty(min(PIECE, 2 * deltas.count + 16), np.int64)
        first = 0
        while True:
            code, detail = kernels.fold_lists(*arguments, limit, prefixes, progress, offsets, out)
            if code == kernels.ABSENT:
                raise absent_value(call, arguments[0], detail)
            cell, used = int(progress[kernels.DONE_CELLS]), int(progress[kernels.USED])
            if code == kernels.DONE or used >= PIECE // 2:
                offsets[first] = 0
                yield first, offsets[first : cell + 1].copy(), out[:used]
                first, used = cell, 0
                progress[kernels.USED] = 0
            if code == kernels.DONE:
                break
            bigger = np.empty(max(2 * len(out), used + detail), np.int64)
            bigger[:used] = out[:used]
            out = bigger

    def save(self) -> OperatorState:
        return self._multisets.save()

    def load(self, state: OperatorState) -> None:
        self._multisets.load(state)


class CollectListFold(Fold):
    """collect_list(x): by start, then `order_by`, then the payload; nulls are kept."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        # Nulls of x count, so `where` cannot be worked into x: it stays an input of its own.
        self.inputs = call.inputs if call.where is None else (*call.inputs, call.where)
        self._codes, self._owns_codes = rows_in_order(self)
        self._lists = RowLists(self._codes.interned)
        self._values = self._codes.column(call.inputs[0].dtype)
        self.columns = (np.dtype(np.int64),)

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        if self._owns_codes:
            take_rows(self, self._codes, inputs, batch)
        self._codes.add(self._values, inputs[0])
        valid = np.ones(len(batch), np.uint8)
        if self.call.where is not None:
            passes, known = values_and_valid_of(inputs[1])
            valid = passes & known
        return [(self._codes.codes, valid)]

    def ensure_slots(self, capacity: int) -> None:
        self._lists.ensure_slots(capacity)

    def keep_slots(self, kept: Array) -> Array | None:
        return kept_rows(self._codes, kept, owns=self._owns_codes)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        pieces = []
        for _, offsets, codes in self._lists.run(deltas, columns[0], self.call, self._codes.prefixes):
            values = self._codes.gather(self._values, codes)
            pieces.append(list_series(self.call.placeholder, offsets, values, self.call.dtype))
        return pl.concat(pieces, rechunk=True)

    def settle(self) -> None:
        if self._owns_codes:
            self._codes.settle()

    def save(self) -> OperatorState:
        codes = self._codes.save() if self._owns_codes else None
        return {"codes": codes, "lists": self._lists.save()}

    def load(self, state: OperatorState) -> None:
        if self._owns_codes:
            self._codes.load(state["codes"])
        self._lists.load(state["lists"])


class TopFold(Fold):
    """top_k(by, k): the first rows by `by`, then the payload, with their competition ranks."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self.columns = (np.dtype(np.int64),)
        self._codes = RowCodes(context.payload.names)
        self._lists = RowLists(self._codes.interned)
        self._values = {name: self._codes.column(dtype) for name, dtype in context.payload.items()}

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        (by,) = inputs
        best = self._best_rows(by, batch, slots)
        if best is None:
            return [(self._codes_of(by, batch), valid_of(by))]
        codes, valid = np.zeros(len(batch), np.int64), np.zeros(len(batch), np.uint8)
        codes[best], valid[best] = self._codes_of(by.gather(best), batch.take(best)), 1
        return [(codes, valid)]

    def _codes_of(self, by: pl.Series, batch: Batch) -> Array:
        self._codes.take(batch, [by], descending=self.call.option("descending"))
        self._codes.set_prefixes(by)
        for name, column in self._values.items():
            self._codes.add(column, batch.columns[name])
        return self._codes.codes

    def _best_rows(self, by: pl.Series, batch: Batch, slots: Array) -> Array | None:
        """Return the only rows that can ever be listed, None for all.

        Of many rows that come to one key at one time and stay for ever these are the first k, with ties.
        """
        k = self.call.option("k")
        if not self.context.properties.endless or len(batch) < MANY * k or batch.sync[0] != batch.sync[-1]:
            return None
        if slots.min() != slots.max():
            return None
        return best_rows(by, k, descending=self.call.option("descending"))

    def ensure_slots(self, capacity: int) -> None:
        self._lists.ensure_slots(capacity)

    def keep_slots(self, kept: Array) -> Array | None:
        return kept_rows(self._codes, kept, owns=True)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        pieces, prefixes, strings = [], self._codes.prefixes, self._codes.interned.strings
        limit = self.call.option("k")
        for _, offsets, codes in self._lists.run(deltas, columns[0], self.call, prefixes, limit):
            ranks = np.empty(len(codes), np.int64)
            kernels.rank_lists(offsets, codes, strings, prefixes, ranks)
            rows = [series_from("rank", ranks, None, pl.Int64())]
            rows += [self._codes.gather(column, codes, name=name) for name, column in self._values.items()]
            structs = framed(rows).to_struct()
            pieces.append(list_series(self.call.placeholder, offsets, structs, self.call.dtype))
        return pl.concat(pieces, rechunk=True)

    def settle(self) -> None:
        self._codes.settle()

    def save(self) -> OperatorState:
        return {"codes": self._codes.save(), "lists": self._lists.save()}

    def load(self, state: OperatorState) -> None:
        self._codes.load(state["codes"])
        self._lists.load(state["lists"])


def best_rows(values: pl.Series, k: int, *, descending: bool) -> Array | None:
    """Return the rows of the k largest numbers, or the smallest, with ties; None where values are no plain numbers.

    Examples
    --------
    >>> best_rows(pl.Series([5, 9, None, 7, 9, 1, 7]), 3, descending=True)
    array([1, 3, 4, 6])
    >>> best_rows(pl.Series([5, 9, None, 7]), 1, descending=False)
    array([0])
    """
    if not isinstance(values.dtype, (*INTEGERS, pl.Float64)):
        return None
    numbers, valid = values_and_valid_of(values)
    rows = np.flatnonzero(valid)
    numbers = numbers[rows]
    if isinstance(values.dtype, pl.Float64) and np.isnan(numbers).any():
        return None
    if len(rows) <= k:
        return rows
    border = len(rows) - k if descending else k - 1
    last = np.partition(numbers, border)[border]
    return rows[numbers >= last if descending else numbers <= last]


register_fold("collect_list")(CollectListFold)
register_fold("top_k")(TopFold)
