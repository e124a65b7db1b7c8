"""The schedule of rows that leave in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from squill.engine.aggregation.schedule import NO_TIMES, Array, Column, Deltas, Schedule
from squill.engine.batch import Batch
from squill.engine.buffers import grown, room_for
from squill.engine.kernels import schedule as kernels
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.time import INFINITY

__all__ = ["GeneralSchedule"]


class GeneralSchedule(Schedule):
    """Rows leave in any order; a heap holds their ends, a row store with free places their values."""

    def __init__(self, columns: Sequence[np.dtype[Any]]) -> None:
        super().__init__(columns)
        self._heap_end = np.empty(16, np.int64)
        self._heap_row = np.empty(16, np.int64)
        self._row_slot = np.empty(16, np.int32)
        self._free = np.arange(15, -1, -1, dtype=np.int64)
        self._free_count = 16
        self._columns = [(np.zeros(16, kind), np.zeros(16, np.uint8)) for kind in columns]

    def run(self, batch: Batch | None, slots: Array, columns: Sequence[Column], bound: int) -> Iterator[Deltas]:
        sync, other = (NO_TIMES, NO_TIMES) if batch is None else (batch.sync, batch.other)
        rows = self._store(slots, columns)
        waiting = int(self.state[kernels.HEAP]) + len(sync)
        self._heap_end = grown(self._heap_end, waiting)
        self._heap_row = grown(self._heap_row, waiting)
        self.state[kernels.NEXT_ROW] = 0
        self._need_chunk(2 * len(sync) + 1)
        freed = np.empty(self._chunk, np.int64)
        done = False
        while not done:
            self._room_for_cells()
            done, count, instants, free = kernels.schedule_general(
                sync, other, rows, self._heap_end, self._heap_row, self._row_slot, freed, bound, *self._outputs
            )
            deltas = self._deltas(count, instants, self._columns)
            yield deltas
            self._drop_finished_cells(deltas)
            self._free[self._free_count : self._free_count + free] = freed[:free]
            self._free_count += free

    def _next_end(self) -> int:
        return int(self._heap_end[0]) if self.state[kernels.HEAP] else INFINITY

    def _store(self, slots: Array, columns: Sequence[Column]) -> Array:
        n = len(slots)
        if n > self._free_count:
            self._grow_store(n - self._free_count)
        rows = self._free[self._free_count - n : self._free_count].copy()
        self._free_count -= n
        self._row_slot[rows] = slots
        for (values, valid), (new_values, new_valid) in zip(self._columns, columns, strict=True):
            values[rows] = new_values
            valid[rows] = new_valid
        return rows

    def _grow_store(self, more: int) -> None:
        old = len(self._row_slot)
        size = room_for(old + more)
        self._row_slot = grown(self._row_slot, size)
        self._columns = [(grown(values, size), grown(valid, size)) for values, valid in self._columns]
        free = np.empty(size, np.int64)
        free[: size - old] = np.arange(size - 1, old - 1, -1)
        free[size - old : size - old + self._free_count] = self._free[: self._free_count]
        self._free = free
        self._free_count += size - old

    @property
    def _stored(self) -> Sequence[Column]:
        return self._columns

    @property
    def rows_held(self) -> int:
        return len(self._row_slot) - self._free_count

    def _keep_rows(self, number_of: Array) -> None:
        waiting = int(self.state[kernels.HEAP])
        rows, ends = self._heap_row[:waiting], self._heap_end[:waiting]
        stays = np.flatnonzero(number_of[self._row_slot[rows]] >= 0)
        stays = stays[np.argsort(ends[stays], kind="stable")]  # what is in order is a heap
        rows, count = rows[stays], len(stays)
        self._heap_end, self._heap_row = grown(ends[stays], 16), grown(np.arange(count), 16)
        self._row_slot = grown(number_of[self._row_slot[rows]].astype(np.int32), 16)
        self._columns = [(grown(values[rows], 16), grown(valid[rows], 16)) for values, valid in self._columns]
        size = len(self._row_slot)
        self._free = grown(np.arange(size - 1, count - 1, -1, dtype=np.int64), size)
        self._free_count = size - count
        self.state[kernels.HEAP] = count
        super()._keep_rows(number_of)

    def save(self) -> OperatorState:
        saved = super().save()
        waiting = int(self.state[kernels.HEAP])
        saved["heap_end"] = self._heap_end[:waiting]
        saved["heap_row"] = self._heap_row[:waiting]
        saved["row_slot"] = self._row_slot
        saved["free"] = self._free[: self._free_count]
        saved["columns"] = list(self._columns)
        return saved

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._heap_end = owned(state["heap_end"])
        self._heap_row = owned(state["heap_row"])
        self._row_slot = owned(state["row_slot"])
        self._free_count = len(state["free"])
        self._free = grown(owned(state["free"]), len(self._row_slot))
        self._columns = [(owned(values), owned(valid)) for values, valid in state["columns"]]
