"""The schedules: one per physical variant, all giving the same `Deltas`.

======================  ==========================================  ====================================
variant                 when                                        what waits for its end
======================  ==========================================  ====================================
`EndlessSchedule`       no event ever ends                          nothing
`CountSchedule`         equal lifetimes, no values are asked for    a queue of how many, by start and slot
`FifoSchedule`          equal lifetimes                             a queue of rows, first in, first out
`GeneralSchedule`       anything, end edges included                a heap of rows by end
======================  ==========================================  ====================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from squill.engine.aggregation.heap_schedule import GeneralSchedule
from squill.engine.aggregation.queue_schedules import CountSchedule, FifoSchedule
from squill.engine.aggregation.schedule import NO_TIMES, Array, Column, Deltas, Schedule
from squill.engine.batch import Batch
from squill.engine.kernels import schedule as kernels
from squill.plan.properties import Properties

__all__ = ["EndlessSchedule", "schedule_for"]


class EndlessSchedule(Schedule):
    """Rows enter and stay; their values are read from the batch and need not be kept."""

    def run(self, batch: Batch | None, slots: Array, columns: Sequence[Column], bound: int) -> Iterator[Deltas]:
        sync = NO_TIMES if batch is None else batch.sync
        wants_deltas = bool(self.column_types)
        self.state[kernels.NEXT_ROW] = 0
        self._need_chunk(len(sync) + 1)
        done = False
        while not done:
            self._room_for_cells()
            done, count, instants = kernels.schedule_endless(sync, slots, bound, wants_deltas, *self._outputs)
            deltas = self._deltas(count, instants, columns)
            yield deltas
            self._drop_finished_cells(deltas)

    @property
    def can_tally(self) -> bool:
        return not self.column_types

    def run_tally(self, batch: Batch, slots: Array, counts: Array, bound: int) -> Iterator[Deltas]:
        self._need_chunk(len(slots) + 1)
        self._room_for_cells()
        instants = kernels.schedule_tally(
            batch.first_sync, slots, counts, bound, self.state, self.slots, self._instant_delta, self._instant_cell,
            self._cell_slot, self._cell_time, self._cell_alive,
        )  # fmt: skip
        deltas = self._deltas(0, instants, ())
        yield deltas
        self._drop_finished_cells(deltas)


def schedule_for(properties: Properties, columns: Sequence[np.dtype[Any]]) -> Schedule:
    """Return the cheapest schedule for a stream with these properties."""
    if properties.endless and properties.ends_known:
        return EndlessSchedule(columns)
    if properties.duration is not None and properties.ends_known:
        return FifoSchedule(columns) if columns else CountSchedule()
    return GeneralSchedule(columns)
