"""The schedules: one per physical variant, all giving the same `Deltas`.

======================  ====================================  =============================
variant                 when                                  what waits for its end
======================  ====================================  =============================
`EndlessSchedule`       no event ever ends                    nothing
`FifoSchedule`          all lifetimes equally long            a queue, first in, first out
`GeneralSchedule`       anything, end edges included          a heap by end
======================  ====================================  =============================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch, Int64s
from squill.engine.belongs import at_slots, renumbering
from squill.engine.buffers import grown, room_for
from squill.engine.kernels import schedule as kernels
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.plan.properties import Properties
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Column", "Deltas", "Schedule", "schedule_for"]

Array = npt.NDArray[Any]
Column = tuple[Array, Array]
"""Values and validity (uint8) of one fold input."""

CHUNK = 131_072
"""Deltas per call: those of one whole batch, whose rows each come and go."""


@dataclass(slots=True)
class Deltas:
    """What changed, and the cells that are finished; see `kernels.schedule` for the layout."""

    slot: Array
    sign: Array
    row: Array
    count: int
    instant_delta: Array
    instant_cell: Array
    instants: int
    cell_slot: Array
    cell_time: Array
    cell_alive: Array
    cells: int
    """How many cells are finished."""
    columns: Sequence[Column]
    """The fold inputs; `row` says where each delta's values lie in them."""


class Schedule:
    """Base of the variants: what is known of each slot, the open instant, the buffers that calls write to."""

    def __init__(self, columns: Sequence[np.dtype[Any]]) -> None:
        self.column_types = tuple(columns)
        self.slots = np.zeros((16, kernels.SLOT_SIZE), np.int64)
        self.state = np.zeros(kernels.STATE_SIZE, np.int64)
        self.state[kernels.TIME] = MINUS_INFINITY
        self._cell_slot = np.empty(16, np.int32)
        self._cell_time = np.empty(16, np.int64)
        self._cell_alive = np.empty(16, np.int64)
        self._chunk = 0
        self._need_chunk(16)

    def _need_chunk(self, size: int) -> None:
        size = min(room_for(size), CHUNK)
        if size > self._chunk:
            self._chunk = size
            self._slot = np.empty(size, np.int32)
            self._sign = np.empty(size, np.int8)
            self._row = np.empty(size, np.int64)
            # One instant more than deltas: the one that was open before.
            self._instant_delta = np.empty(size + 1, np.int64)
            self._instant_cell = np.empty(size + 1, np.int64)

    def ensure_slots(self, capacity: int) -> None:
        self.slots = grown(self.slots, capacity)

    def run(self, batch: Batch | None, slots: Array, columns: Sequence[Column], bound: int) -> Iterator[Deltas]:
        """Take rows and let time come to `bound`; yield the changes in pieces, in time order.

        Everything below `bound` is finished; without a bound of their own rows finish all instants before
        the last row's.
        """
        raise NotImplementedError

    def has_due(self, bound: int) -> bool:
        """True when time that comes to `bound` finishes an instant or ends a row; most small steps do neither."""
        if self.state[kernels.OPEN] and self.state[kernels.TIME] < bound:
            return True
        return self._next_end() < bound

    def _next_end(self) -> int:
        """When the next of the rows that wait for their end leaves; infinity when none does."""
        return INFINITY

    def _room_for_cells(self) -> None:
        size = int(self.state[kernels.CELLS]) + self._chunk
        self._cell_slot = grown(self._cell_slot, size)
        self._cell_time = grown(self._cell_time, size)
        self._cell_alive = grown(self._cell_alive, size)

    def _deltas(self, count: int, instants: int, columns: Sequence[Column]) -> Deltas:
        cells = int(self._instant_cell[instants - 1]) if instants else 0
        return Deltas(
            self._slot, self._sign, self._row, count, self._instant_delta, self._instant_cell, instants,
            self._cell_slot, self._cell_time, self._cell_alive, cells, columns,
        )  # fmt: skip

    def _drop_finished_cells(self, deltas: Deltas) -> None:
        """Move the open instant's cells to the front."""
        done, total = deltas.cells, int(self.state[kernels.CELLS])
        if done:
            self._cell_slot[: total - done] = self._cell_slot[done:total]
            self._cell_time[: total - done] = self._cell_time[done:total]
            self.state[kernels.CELLS] = total - done

    @property
    def _outputs(self) -> tuple[Array, ...]:
        return (
            self.state, self.slots, self._slot, self._sign, self._row, self._instant_delta,
            self._instant_cell, self._cell_slot, self._cell_time, self._cell_alive,
        )  # fmt: skip

    @property
    def open_serial(self) -> int:
        """The number of the instant that may still change; −2 when there is none."""
        return int(self.state[kernels.SERIAL]) if self.state[kernels.OPEN] else -2

    @property
    def rows_held(self) -> int:
        return 0

    def keep_slots(self, kept: Array) -> None:
        """Forget all but these slots, of which the i-th is slot i from now on."""
        self._keep_rows(renumbering(kept, len(self.slots)))

    def _keep_rows(self, number_of: Array) -> None:
        """Forget what is of slots without a number, and give the others theirs."""
        cells = int(self.state[kernels.CELLS])
        numbers = number_of[self._cell_slot[:cells]]
        stays = numbers >= 0
        self._cell_slot = grown(numbers[stays].astype(np.int32), 16)
        self._cell_time = grown(self._cell_time[:cells][stays], 16)
        self._cell_alive = np.empty(len(self._cell_slot), np.int64)
        self.state[kernels.CELLS] = np.count_nonzero(stays)
        self.slots = at_slots(self.slots, np.flatnonzero(number_of >= 0)[np.argsort(number_of[number_of >= 0])])

    def save(self) -> OperatorState:
        cells = int(self.state[kernels.CELLS])
        return {
            "slots": self.slots,
            "state": self.state,
            "cell_slot": self._cell_slot[:cells],
            "cell_time": self._cell_time[:cells],
        }

    def load(self, state: OperatorState) -> None:
        self.slots = owned(state["slots"])
        self.state = owned(state["state"])
        cells = len(state["cell_slot"])
        self._cell_slot = grown(owned(state["cell_slot"]), cells + 16)
        self._cell_time = grown(owned(state["cell_time"]), cells + 16)
        self._cell_alive = np.empty(len(self._cell_slot), np.int64)


NO_TIMES: Int64s = np.empty(0, np.int64)
NO_SLOTS: Array = np.empty(0, np.int32)


class EndlessSchedule(Schedule):
    """Rows enter and stay; their values are read from the batch and need not be kept."""

    def run(self, batch: Batch | None, slots: Array, columns: Sequence[Column], bound: int) -> Iterator[Deltas]:
        sync = NO_TIMES if batch is None else batch.sync
        self.state[kernels.NEXT_ROW] = 0
        self._need_chunk(len(sync) + 1)
        done = False
        while not done:
            self._room_for_cells()
            done, count, instants = kernels.schedule_endless(sync, slots, bound, *self._outputs)
            deltas = self._deltas(count, instants, columns)
            yield deltas
            self._drop_finished_cells(deltas)


class FifoSchedule(Schedule):
    """Rows leave in the order in which they came; a queue holds ends, slots and values."""

    def __init__(self, columns: Sequence[np.dtype[Any]]) -> None:
        super().__init__(columns)
        self._tail = 0
        self._queue_end = np.empty(16, np.int64)
        self._queue_slot = np.empty(16, np.int32)
        self._columns = [(np.empty(16, kind), np.empty(16, np.uint8)) for kind in columns]

    def run(self, batch: Batch | None, slots: Array, columns: Sequence[Column], bound: int) -> Iterator[Deltas]:
        sync = NO_TIMES if batch is None else batch.sync
        base = self._append(batch, slots, columns)
        self.state[kernels.NEXT_ROW] = 0
        self._need_chunk(2 * len(sync) + 1)
        wants_deltas = bool(self._columns)
        done = False
        while not done:
            self._room_for_cells()
            done, count, instants = kernels.schedule_fifo(
                sync, slots, base, self._queue_end, self._queue_slot, self._tail, bound, wants_deltas, *self._outputs
            )
            deltas = self._deltas(count, instants, self._columns)
            yield deltas
            self._drop_finished_cells(deltas)

    def _append(self, batch: Batch | None, slots: Array, columns: Sequence[Column]) -> int:
        n = len(slots)
        if self._tail + n > len(self._queue_end):
            self._make_room(n)
        base, end = self._tail, self._tail + n
        if batch is not None:
            if batch.duration is not None:
                np.add(batch.sync, batch.duration, out=self._queue_end[base:end])
            else:
                self._queue_end[base:end] = batch.other
            self._queue_slot[base:end] = slots
            for (values, valid), (new_values, new_valid) in zip(self._columns, columns, strict=True):
                values[base:end] = new_values
                valid[base:end] = new_valid
        self._tail = end
        return base

    def _next_end(self) -> int:
        head = self.state[kernels.HEAD]
        return int(self._queue_end[head]) if head < self._tail else INFINITY

    def _make_room(self, n: int) -> None:
        """Move the queue to the front, into larger arrays when much more than half is in use.

        Then a move comes after many rows again, and little memory is touched that is not in use.
        """
        head, tail = int(self.state[kernels.HEAD]), self._tail
        live = tail - head
        size = len(self._queue_end)
        if 8 * (live + n) > 5 * size:
            size = 2 * (live + n)
        self._queue_end = _moved(self._queue_end, head, tail, size)
        self._queue_slot = _moved(self._queue_slot, head, tail, size)
        self._columns = [
            (_moved(values, head, tail, size), _moved(valid, head, tail, size)) for values, valid in self._columns
        ]
        self.state[kernels.HEAD] = 0
        self._tail = live

    @property
    def rows_held(self) -> int:
        return self._tail - int(self.state[kernels.HEAD])

    def _keep_rows(self, number_of: Array) -> None:
        waiting = slice(int(self.state[kernels.HEAD]), self._tail)
        numbers = number_of[self._queue_slot[waiting]]
        stays = numbers >= 0
        self._queue_end = grown(self._queue_end[waiting][stays], 16)
        self._queue_slot = grown(numbers[stays].astype(np.int32), 16)
        self._columns = [
            (grown(values[waiting][stays], 16), grown(valid[waiting][stays], 16)) for values, valid in self._columns
        ]
        self.state[kernels.HEAD], self._tail = 0, int(np.count_nonzero(stays))
        super()._keep_rows(number_of)

    def save(self) -> OperatorState:
        # Rows that have left stay in front, so that those behind them keep their places from one save to the
        # next: a log of what changed is short then. Once they are the greater part they are not worth it.
        if 2 * int(self.state[kernels.HEAD]) > self._tail:
            self._make_room(0)
        saved = super().save()
        used = slice(0, self._tail)
        saved["queue_end"] = self._queue_end[used]
        saved["queue_slot"] = self._queue_slot[used]
        saved["columns"] = [(values[used], valid[used]) for values, valid in self._columns]
        return saved

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._tail = len(state["queue_end"])
        self._queue_end = owned(state["queue_end"])
        self._queue_slot = owned(state["queue_slot"])
        self._columns = [(owned(values), owned(valid)) for values, valid in state["columns"]]


def _moved(array: Array, head: int, tail: int, size: int) -> Array:
    target = np.empty(size, array.dtype) if size != len(array) else array
    target[: tail - head] = array[head:tail]
    return target


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


def schedule_for(properties: Properties, columns: Sequence[np.dtype[Any]]) -> Schedule:
    """Return the cheapest schedule for a stream with these properties."""
    if properties.endless and properties.ends_known:
        return EndlessSchedule(columns)
    if properties.duration is not None and properties.ends_known:
        return FifoSchedule(columns)
    return GeneralSchedule(columns)
