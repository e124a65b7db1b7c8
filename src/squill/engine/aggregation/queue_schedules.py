"""The schedules of rows that leave in the order in which they came: what waits for its end stands in a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from squill.engine.aggregation.schedule import NO_TIMES, Array, Column, Deltas, Schedule
from squill.engine.batch import Batch
from squill.engine.buffers import grown
from squill.engine.kernels import schedule as kernels
from squill.engine.large_arrays import large_array
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.time import INFINITY

__all__ = ["CountSchedule", "FifoSchedule"]

NO_SLOTS = np.empty(0, np.int32)
Kernel = Callable[..., tuple[bool, int, int]]

END, SLOT, FIRST_VALUE = 0, 1, 2
"""The queue's arrays: ends, slots, then what is known of those who wait."""


class QueueSchedule(Schedule):
    """Base of both: `_queue` holds arrays of one length, of which `_head` to `_tail` are waiting."""

    def __init__(self, columns: Sequence[np.dtype[Any]], values: Sequence[np.dtype[Any]]) -> None:
        super().__init__(columns)
        self._tail = 0
        kinds: list[np.dtype[Any]] = [np.dtype(np.int64), np.dtype(np.int32), *values]
        self._queue: list[Array] = [np.empty(16, kind) for kind in kinds]

    @property
    def _head(self) -> int:
        return int(self.state[kernels.HEAD])

    def _next_end(self) -> int:
        return int(self._queue[END][self._head]) if self._head < self._tail else INFINITY

    def _room_for_more(self, n: int) -> None:
        if self._tail + n > len(self._queue[END]):
            self._make_room(n)

    def _make_room(self, n: int) -> None:
        """Move the queue to the front, into larger arrays when much more than half is in use.

        Then a move comes after many rows again, and little memory is touched that is not in use.
        """
        head, tail = self._head, self._tail
        live = tail - head
        size = len(self._queue[END])
        if 8 * (live + n) > 5 * size:
            size = 2 * (live + n)
        self._queue = [_moved(array, head, tail, size) for array in self._queue]
        self.state[kernels.HEAD] = 0
        self._tail = live

    @property
    def rows_held(self) -> int:
        return self._tail - self._head

    def _keep_rows(self, number_of: Array) -> None:
        waiting = slice(self._head, self._tail)
        numbers = number_of[self._queue[SLOT][waiting]]
        stays = numbers >= 0
        self._queue = [array[waiting][stays] for array in self._queue]
        self._queue[SLOT] = numbers[stays].astype(np.int32)
        self._queue = [grown(array, 16) for array in self._queue]
        self.state[kernels.HEAD], self._tail = 0, int(np.count_nonzero(stays))
        super()._keep_rows(number_of)

    def save(self) -> OperatorState:
        # What has left stays in front, so that what is behind keeps its place from one save to the next: a log
        # of what changed is short then. Once it is the greater part it is not worth it.
        if 2 * self._head > self._tail:
            self._make_room(0)
        saved = super().save()
        saved["queue"] = [array[: self._tail] for array in self._queue]
        return saved

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._queue = [owned(array) for array in state["queue"]]
        self._tail = len(self._queue[END])


def _moved(array: Array, head: int, tail: int, size: int) -> Array:
    target = large_array(size, array.dtype) if size != len(array) else array
    target[: tail - head] = array[head:tail]
    return target


class FifoSchedule(QueueSchedule):
    """Every row waits, with its values."""

    def __init__(self, columns: Sequence[np.dtype[Any]]) -> None:
        super().__init__(columns, [part for kind in columns for part in (kind, np.dtype(np.uint8))])

    def run(self, batch: Batch | None, slots: Array, columns: Sequence[Column], bound: int) -> Iterator[Deltas]:
        sync = NO_TIMES if batch is None else batch.sync
        base = self._append(batch, slots, columns)
        self.state[kernels.NEXT_ROW] = 0
        self._need_chunk(2 * len(sync) + 1)
        waiting = self._stored
        done = False
        while not done:
            self._room_for_cells()
            done, count, instants = kernels.schedule_fifo(
                sync, slots, base, self._queue[END], self._queue[SLOT], self._tail, bound, *self._outputs
            )
            deltas = self._deltas(count, instants, waiting)
            yield deltas
            self._drop_finished_cells(deltas)

    @property
    def _stored(self) -> Sequence[Column]:
        values = self._queue[FIRST_VALUE:]
        return list(zip(values[::2], values[1::2], strict=True))

    def _append(self, batch: Batch | None, slots: Array, columns: Sequence[Column]) -> int:
        n = len(slots)
        self._room_for_more(n)
        base, end = self._tail, self._tail + n
        if batch is not None:
            ends, queued, *values = (array[base:end] for array in self._queue)
            if batch.duration is not None:
                np.add(batch.sync, batch.duration, out=ends)
            else:
                ends[:] = batch.other
            queued[:] = slots
            for target, given in zip(values, (part for column in columns for part in column), strict=True):
                target[:] = given
        self._tail = end
        return base


class CountSchedule(QueueSchedule):
    """Rows of a slot that came together leave together: what waits is how many they are, not each of them."""

    def __init__(self) -> None:
        super().__init__((), [np.dtype(np.int64)])

    def run(self, batch: Batch | None, slots: Array, columns: Sequence[Column], bound: int) -> Iterator[Deltas]:
        sync, ends, duration = NO_TIMES, NO_TIMES, 0
        if batch is not None:
            sync, duration = batch.sync, batch.duration or 0
            ends = NO_TIMES if duration else batch.other
        return self._counted(kernels.schedule_counts, (sync, ends, duration, slots), len(sync), bound)

    @property
    def can_tally(self) -> bool:
        return True

    def run_tally(self, batch: Batch, slots: Array, counts: Array, bound: int) -> Iterator[Deltas]:
        start = batch.first_sync
        end = int(batch.other[0]) if batch.duration is None else start + batch.duration  # no ends are made for it
        if self.has_due(start):
            yield from self.run(None, NO_SLOTS, (), start)
        given = (start, end, slots, counts)
        yield from self._counted(kernels.schedule_passing_tally, given, len(slots), bound)

    def _counted(self, kernel: Kernel, given: tuple[Any, ...], entries: int, bound: int) -> Iterator[Deltas]:
        """Let a kernel take what is given, in as many calls as it needs; so many entries may come to the queue."""
        self._room_for_more(entries)
        self.state[kernels.NEXT_ROW] = 0
        self._need_chunk(2 * entries + 1)
        done = False
        while not done:
            self._room_for_cells()
            done, self._tail, instants = kernel(
                *given, *self._queue, self._tail, bound, self._chunk,
                self.state, self.slots, self._instant_delta, self._instant_cell,
                self._cell_slot, self._cell_time, self._cell_alive,
            )  # fmt: skip
            deltas = self._deltas(0, instants, ())
            yield deltas
            self._drop_finished_cells(deltas)

    @property
    def open_serial(self) -> int:
        # Each run of starts of an instant has a number of its own, from that of the instant on.
        return int(self.state[kernels.INSTANT]) if self.state[kernels.OPEN] else super().open_serial
