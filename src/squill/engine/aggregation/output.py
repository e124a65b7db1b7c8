"""From finished cells to output rows, in the form that the consumer asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aggregation.schedule import Deltas
from squill.engine.batch import Batch, Int64s
from squill.engine.columns import taken
from squill.engine.kernels import cells as kernels
from squill.engine.kernels.schedule import OPEN_ROW
from squill.engine.operator import EDGES, NUMBERED, OperatorState
from squill.engine.row_store import RowStore
from squill.time import INFINITY

__all__ = ["CellOutput"]

Array = npt.NDArray[Any]
Columns = dict[str, pl.Series]
KeysOf = Callable[[Array], Columns]


class CellOutput:
    """Ends a slot's open output row when the slot's next cell comes.

    Which row is open stands with the slot. `keys_of` gives the key columns of slots. With EDGES the payload
    of open rows is held, because their end edges carry it again.
    """

    def __init__(self, keys_of: KeysOf, value_types: dict[str, pl.DataType]) -> None:
        self._keys_of = keys_of
        self._next_id = 0
        self._held = RowStore(value_types)

    def rows(
        self, deltas: Deltas, slots: Array, values: Columns, demand: str
    ) -> tuple[Batch, tuple[Int64s, Int64s] | None]:
        """Return the rows of the finished cells, and (numbers, ends) when ends are told by number."""
        if demand == EDGES:
            return self._edges(deltas, slots, values), None
        if demand == NUMBERED:
            return self._numbered(deltas, slots, values)
        n = deltas.cells
        chosen = np.empty(n, np.int64)
        count = kernels.cells_to_starts(deltas.cell_alive, n, chosen)
        return self._starts(deltas, values, chosen[:count]), None

    def _starts(self, deltas: Deltas, values: Columns, chosen: Array) -> Batch:
        n = deltas.cells
        key_slots = deltas.cell_slot[:n]
        if len(chosen) < n:
            key_slots, sync = key_slots[chosen], deltas.cell_time[chosen]
            values = taken(values, chosen)
        else:
            sync = deltas.cell_time[:n].copy()
        return Batch(sync, INFINITY, {**self._keys_of(key_slots), **values})

    def _numbered(self, deltas: Deltas, slots: Array, values: Columns) -> tuple[Batch, tuple[Int64s, Int64s]]:
        n = deltas.cells
        chosen, ended, ends = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        count, closed = kernels.cells_to_numbered_rows(
            deltas.cell_slot, deltas.cell_time, deltas.cell_alive, n, slots, self._next_id, chosen, ended, ends
        )
        batch = self._starts(deltas, values, chosen[:count])
        batch.ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        return batch, (ended[:closed], ends[:closed])

    def _edges(self, deltas: Deltas, slots: Array, values: Columns) -> Batch:
        n = deltas.cells
        sync, other, source = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        row_slot = np.empty(2 * n, np.int32)
        count = kernels.cells_to_edges(
            deltas.cell_slot, deltas.cell_time, deltas.cell_alive, n, slots, len(self._held),
            sync, other, source, row_slot,
        )  # fmt: skip
        self._held.append(values, n)
        shown = self._held.gather(source[:count])
        self._compact(slots)
        return Batch(sync[:count], other[:count], {**self._keys_of(row_slot[:count]), **shown})

    def _compact(self, slots: Array) -> None:
        """Keep only the rows that are open, once most are not."""
        if self._held.is_wasteful(0):
            open_slots = np.flatnonzero(slots[:, OPEN_ROW])
            if self._held.is_wasteful(len(open_slots)):
                self.keep_open(slots, EDGES)

    def keep_open(self, slots: Array, demand: str) -> None:
        """Keep only the rows that these slots have open."""
        if demand == EDGES:
            open_slots = np.flatnonzero(slots[:, OPEN_ROW])
            self._held.keep(slots[open_slots, OPEN_ROW] - 1)
            slots[open_slots, OPEN_ROW] = np.arange(1, len(open_slots) + 1)

    def save(self) -> OperatorState:
        return {"next_id": self._next_id, "held": self._held.save()}

    def load(self, state: OperatorState) -> None:
        self._next_id = state["next_id"]
        self._held.load(state["held"])
