"""What a schedule gives, and what all have in common: what is known of each slot, the open instant, the buffers."""

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
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["CHUNK", "NO_TIMES", "Array", "Column", "Deltas", "Schedule"]

Array = npt.NDArray[Any]
Column = tuple[Array, Array]
"""Values and validity (uint8) of one fold input."""

NO_TIMES: Int64s = np.empty(0, np.int64)

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

    @property
    def can_tally(self) -> bool:
        """Whether `run_tally` takes rows of which nothing is asked but how many each slot has."""
        return False

    def run_tally(self, batch: Batch, slots: Array, counts: Array, bound: int) -> Iterator[Deltas]:
        """As `run`, for rows of one start and one end, of which each slot has so many: see `KeyTable.tally`."""
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
        """The least stamp that the instant gives that may still change; above all when there is none."""
        return int(self.state[kernels.SERIAL]) if self.state[kernels.OPEN] else INFINITY

    @property
    def rows_held(self) -> int:
        return 0

    def keep_slots(self, kept: Array, number_of: Sequence[Array | None] = ()) -> None:
        """Forget all but these slots, of which the i-th is slot i from now on.

        `number_of` has the new numbers of codes for each column of those that are stored, None for other values.
        """
        self._keep_rows(renumbering(kept, len(self.slots)))
        if self._stored:
            for (values, valid), numbers in zip(self._stored, number_of, strict=True):
                if numbers is not None:
                    # A code that is not valid may stand for nothing.
                    values[:] = np.where(valid, numbers[np.where(valid, values, 0)], 0)

    @property
    def _stored(self) -> Sequence[Column]:
        """The columns of the rows that wait, in arrays that may be longer: what is not valid means nothing."""
        return ()

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
