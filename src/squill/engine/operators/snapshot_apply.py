"""SnapshotApply: the user's own function over the rows alive at each change point."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aggregation.empty_slots import EmptySlots
from squill.engine.aggregation.fold_codes import RowCodes
from squill.engine.aggregation.fold_lists import RowLists
from squill.engine.aggregation.schedule import Deltas
from squill.engine.aggregation.schedules import schedule_for
from squill.engine.batch import Batch
from squill.engine.codecs import decoded
from squill.engine.columns import framed
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.open_answers import OpenAnswers
from squill.engine.operator import NUMBERED, Belongs, OperatorState, register
from squill.engine.row_starts import row_starts
from squill.engine.user_code import Call, UserCode
from squill.engine.user_rows import UserRows
from squill.plan.nodes import SnapshotApply

__all__ = ["SnapshotApplyOperator"]

Array = npt.NDArray[Any]
NONE = np.empty(0, np.int64)


@register(SnapshotApply)
class SnapshotApplyOperator(KeyedOperator):
    """The schedule of an aggregate says when what is alive changes; the lists of rows are cut from one frame.

    State: the rows alive and the open answer of each key.
    """

    numbers_rows = True

    def __init__(self, node: SnapshotApply) -> None:
        super().__init__(node)
        self._node = node
        payload = node.parent.schema
        self._keys = KeySlots(node.keys, payload)
        self._codes = RowCodes(payload.names)
        self._columns = {name: self._codes.column(dtype) for name, dtype in payload.items()}
        self._lists = RowLists(self._codes.interned)
        self._schedule = schedule_for(node.parent.properties, [np.dtype(np.int64)])
        self._empty = EmptySlots(self._schedule)
        self._code = UserCode(node, self._keys)
        self._rows = UserRows(node, self._code)
        self._answers = OpenAnswers(self._keys.columns, node.own)

    def push(self, batch: Batch, port: int = 0) -> None:
        slots = self._keys.slots(batch)
        self._ensure_slots()
        self._codes.take(batch, [pl.Series(row_starts(batch, self._node.parent.time))])
        for name, column in self._columns.items():
            self._codes.add(column, batch.columns[name])
        self._run(batch, slots, self._codes.codes, self.clock)

    def advance(self, t: int, port: int = 0) -> None:
        self._run(None, np.empty(0, np.int32), NONE, t)
        self.emit_clock(t)

    def _ensure_slots(self) -> None:
        self._schedule.ensure_slots(self._keys.capacity)
        self._lists.ensure_slots(self._keys.capacity)

    def _run(self, batch: Batch | None, slots: Array, codes: Array, bound: int) -> None:
        columns = [(codes, np.ones(len(codes), np.uint8))]
        for deltas in self._schedule.run(batch, slots, columns, bound):
            for first, offsets, alive in self._lists.run(deltas, deltas.columns[0], self._name, self._codes.prefixes):
                self._apply(deltas, first, offsets, alive)
            self._empty.collect(deltas)
            self._emit()
        self._codes.settle()
        self._keys.release(self._empty.take())

    @property
    def _name(self) -> str:
        return f"snapshot_apply({self._node.label})"

    def _apply(self, deltas: Deltas, first: int, offsets: Array, codes: Array) -> None:
        """Call the function for the cells from `first` on, whose rows are at these offsets."""
        cells = slice(first, first + len(offsets) - 1)
        slots, times = deltas.cell_slot[cells].tolist(), deltas.cell_time[cells].tolist()
        frame = self._frame(codes)
        bounds = offsets.tolist()
        for slot, t, low, high in zip(slots, times, bounds[:-1], bounds[1:], strict=True):
            returned = None
            if low < high:
                rows = frame.slice(low, high - low)
                call = Call("", t, slot, rows)
                returned = self._code.call(self._node.function, call, rows)
            self._answers.replace(slot, t, 0 if returned is None else self._rows.add(returned, call))

    def _frame(self, codes: Array) -> pl.DataFrame:
        columns = [self._codes.gather(column, codes, name=name) for name, column in self._columns.items()]
        frame = framed(columns) if columns else pl.DataFrame(height=len(codes))
        return decoded(frame, self._node.parent.codecs)

    def _emit(self) -> None:
        taken = self._answers.take(self._rows.take(), self.demand)
        if taken is not None:
            batch, closed = taken
            self.emit(batch)
            if self.demand == NUMBERED and closed is not None:
                self.close_rows(*closed)

    # -- state --------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "codes": self._codes.save(),
            "lists": self._lists.save(),
            "schedule": self._schedule.save(),
            "answers": self._answers.save(),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._codes.load(state["codes"])
        self._lists.load(state["lists"])
        self._schedule.load(state["schedule"])
        self._answers.load(state["answers"])
        self._ensure_slots()

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        self._codes.keep_slots(kept)
        self._schedule.keep_slots(kept, [self._codes.number_of])
        self._answers.keep_slots(kept)
        self._ensure_slots()

    @property
    def state_rows(self) -> int:
        return self._keys.live + self._schedule.rows_held + len(self._answers)
