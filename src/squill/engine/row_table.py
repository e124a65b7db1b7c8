"""Slots for whole payloads: equal rows share one, whatever their columns are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.belongs import Belongs
from squill.engine.buffers import grown
from squill.engine.columns import taken
from squill.engine.edges import row_keys
from squill.engine.hashing import supports
from squill.engine.key_table import KeyTable
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.engine.row_store import RowStore

__all__ = ["RowTable"]

Array = npt.NDArray[Any]


class RowTable:
    """A `KeyTable` over all columns; types that cannot be keys (lists, structs) are kept beside their bytes."""

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self._names = list(types)
        self._plain = bool(types) and all(supports(dtype) for dtype in types.values())
        self._table = KeyTable(list(types.values()) if self._plain else [pl.Binary()])
        self._store = RowStore({} if self._plain else types)
        self._place = np.full(16, -1, np.int64)

    @property
    def capacity(self) -> int:
        return self._table.capacity

    @property
    def live(self) -> int:
        return self._table.live

    def slots(self, batch: Batch) -> Array:
        """Return the slot of each row, new ones for payloads not seen."""
        if self._plain:
            return self._table.slots([batch.columns[name] for name in self._names])
        slots = self._table.slots([row_keys(batch, starts=False)])
        self._place = grown(self._place, self._table.capacity, -1)
        unseen, first = np.unique(slots[self._place[slots] < 0], return_index=True)
        if len(unseen):
            rows = np.flatnonzero(self._place[slots] < 0)[first]
            new = taken(batch.columns, rows)
            self._place[unseen] = self._store.append(new, len(rows)) + np.arange(len(rows))
        return slots

    def gather(self, slots: Array) -> dict[str, pl.Series]:
        """Return the payloads of slots."""
        if self._plain:
            return dict(zip(self._names, self._table.gather(slots, self._names), strict=True))
        return self._store.gather(self._place[slots])

    def keep(self, belongs: Belongs) -> Array:
        """Forget the payloads of other shards; return the slots that stay, the i-th of which is slot i from now on."""
        living = self._table.living
        kept = living[belongs(self.gather(living))]
        if not self._plain:
            self._store.keep(self._place[kept])
            self._place = grown(np.arange(len(kept)), 16, -1)
        self._table.keep(kept)
        return kept

    def release(self, slots: Array) -> None:
        self._table.release(slots)
        if not self._plain:
            self._place[slots] = -1
            if self._store.is_wasteful(self._table.live):
                live = np.flatnonzero(self._place >= 0)
                self._store.keep(self._place[live])
                self._place[live] = np.arange(len(live))

    def save(self) -> OperatorState:
        return {"table": self._table.save(), "store": self._store.save(), "place": self._place}

    def load(self, state: OperatorState) -> None:
        self._table.load(state["table"])
        self._store.load(state["store"])
        self._place = owned(state["place"])
