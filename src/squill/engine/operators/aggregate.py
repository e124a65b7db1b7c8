"""Aggregate: one row of values per key and change point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aggregation import (  # noqa: F401  (registers folds)
    fold_distinct,
    fold_lists,
    fold_products,
    fold_ranks,
    fold_sums,
    fold_user,
)  # fmt: skip
from squill.engine.aggregation.empty_slots import EmptySlots
from squill.engine.aggregation.folds import Fold, FoldContext, fold_for
from squill.engine.aggregation.output import CellOutput
from squill.engine.aggregation.schedule import CHUNK, Column, Deltas
from squill.engine.aggregation.schedules import schedule_for
from squill.engine.batch import Batch
from squill.engine.expressions import Evaluator
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.operator import NUMBERED, Belongs, Operator, OperatorState, register
from squill.engine.operators.in_parts import InParts
from squill.engine.operators.relational_aggregate import RelationalAggregateOperator, can_lower
from squill.plan.expressions import Expression
from squill.plan.nodes import Aggregate

__all__ = ["AggregateOperator", "aggregate_operator"]

Array = npt.NDArray[Any]
KEPT_KEYS = 4_096
"""Where rows are counted by key at once, so many keys of which nothing is alive stay in the table: the next rows mostly
have the same ones, and keys that are not known are not counted quickly."""
TALLY_ROWS = 4_096
"""With fewer rows looking through what was counted takes longer than the rows do."""


class AggregateOperator(KeyedOperator):
    """A schedule chosen by the input's properties, one fold per distinct aggregate, one output.

    State: the alive rows' fold inputs (none for a stream without ends), the folds' state per alive key.
    """

    numbers_rows = True

    def __init__(self, node: Aggregate) -> None:
        super().__init__(node)
        self._node = node
        self._keys = KeySlots(node.keys, node.schema)
        context = FoldContext(node.parent.schema, node.parent.properties, node.parent.time)
        self._folds: list[Fold] = [fold_for(call, context) for call in node.calls]
        self._inputs = self._input_evaluator()
        column_types = [kind for fold in self._folds for kind in fold.columns]
        self._schedule = schedule_for(node.parent.properties, column_types)
        self._no_columns: list[Column] = [(np.empty(0, kind), np.empty(0, np.uint8)) for kind in column_types]
        self._output = CellOutput(self._keys.columns, {item.name: item.dtype for item in node.columns})
        self._results = Evaluator(node.columns, None, "aggregate")
        self._empty = EmptySlots(self._schedule)

    def _input_evaluator(self) -> Evaluator | None:
        """All folds' inputs in one evaluation, under names of their own."""
        named: list[Expression] = []
        for number, fold in enumerate(self._folds):
            named += [item.renamed(f"{number}:{k}") for k, item in enumerate(fold.inputs)]
        return Evaluator(named, self._node.parent.time, "aggregate") if named else None

    # -- rows ---------------------------------------------------------------------------------------------

    def push(self, batch: Batch, port: int = 0) -> None:
        if self._push_tally(batch):
            return
        slots = self._keys.slots(batch)
        self._ensure_slots(self._keys.capacity)
        self._take(self._schedule.run(batch, slots, self._stored_columns(batch, slots), self.clock))

    def _push_tally(self, batch: Batch) -> bool:
        """Take many rows of one start and one end that are only counted; return whether they are."""
        if not self._schedule.can_tally or len(batch) < TALLY_ROWS or batch.first_sync != batch.last_sync:
            return False
        tally = self._keys.tally(batch)
        if tally is None or len(tally[0]) > CHUNK:
            return False
        self._ensure_slots(self._keys.capacity)
        self._empty.kept = KEPT_KEYS
        self._take(self._schedule.run_tally(batch, *tally, self.clock))
        return True

    def advance(self, t: int, port: int = 0) -> None:
        if self._schedule.has_due(t):
            self._take(self._schedule.run(None, np.empty(0, np.int32), self._no_columns, t))
        self.emit_clock(t)

    def _ensure_slots(self, capacity: int) -> None:
        self._schedule.ensure_slots(capacity)
        for fold in self._folds:
            fold.ensure_slots(capacity)

    def _stored_columns(self, batch: Batch, slots: Array) -> list[Column]:
        values = self._inputs(batch) if self._inputs is not None else {}
        columns: list[Column] = []
        for number, fold in enumerate(self._folds):
            inputs = [values[f"{number}:{k}"] for k in range(len(fold.inputs))]
            columns += fold.prepare(inputs, batch, slots)
        return columns

    def _take(self, changes: Iterator[Deltas]) -> None:
        for deltas in changes:
            values = self._fold(deltas)
            if deltas.cells:
                self._emit_cells(deltas, values)
                self._empty.collect(deltas)
        for fold in self._folds:
            fold.settle()
        if self._empty.are_many:
            self._release()

    def _release(self) -> None:
        self._keys.release(self._empty.take())

    def _fold(self, deltas: Deltas) -> dict[str, pl.Series]:
        values: dict[str, pl.Series] = {}
        first = 0
        for fold in self._folds:
            last = first + len(fold.columns)
            values[fold.call.placeholder] = fold.run(deltas, deltas.columns[first:last])
            first = last
        return values

    def _emit_cells(self, deltas: Deltas, values: dict[str, pl.Series]) -> None:
        cells = Batch(deltas.cell_time[: deltas.cells], deltas.cell_time[: deltas.cells], values)
        rows, ends = self._output.rows(deltas, self._schedule.slots, self._results(cells), self.demand)
        self.emit(rows)
        if self.demand == NUMBERED and ends is not None:
            self.close_rows(*ends)

    # -- state --------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        self._release()
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "schedule": self._schedule.save(),
            "folds": [fold.save() for fold in self._folds],
            "output": self._output.save(),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._schedule.load(state["schedule"])
        for fold, saved in zip(self._folds, state["folds"], strict=True):
            fold.load(saved)
        self._output.load(state["output"])
        self._ensure_slots(self._keys.capacity)

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        self._release()
        return super().keep(belongs)

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        numbers = [fold.keep_slots(kept) for fold in self._folds]
        of_columns = zip(self._folds, numbers, strict=True)
        self._schedule.keep_slots(kept, [number_of for fold, number_of in of_columns for _ in fold.columns])
        self._output.keep_open(self._schedule.slots, self.demand)
        self._ensure_slots(self._keys.capacity)

    @property
    def state_rows(self) -> int:
        return self._keys.live - self._empty.count + self._schedule.rows_held


@register(Aggregate)
def aggregate_operator(node: Aggregate) -> Operator:
    make = _in_parts if _can_be_divided(node) else AggregateOperator
    return RelationalAggregateOperator(node, make) if can_lower(node) else make(node)


def _can_be_divided(node: Aggregate) -> bool:
    """Whether groups may end at any time, which only those without times may, and have a form on disk."""
    has_form = not any(isinstance(dtype, pl.Object) for dtype in node.parent.schema.values())
    return node.is_relational and bool(node.keys) and has_form


def _in_parts(node: Aggregate) -> Operator:
    return InParts(node, node.keys, lambda: AggregateOperator(node))
