"""Events that an operator keeps while they are open: payload in a store, the rest in arrays by entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.belongs import renumbering
from squill.engine.buffers import grown, room_for
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.engine.row_store import RowStore

__all__ = ["Entries"]

Array = npt.NDArray[Any]


class Entries:
    """A number per open event, used again once the event is gone.

    ``start`` and ``following`` are arrays by entry for the operators' kernels; the latter chains entries.
    """

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self._store = RowStore(types)
        self._place = np.full(16, -1, np.int64)
        self.start = np.zeros(16, np.int64)
        self.following = np.full(16, -1, np.int64)
        self._free = np.arange(15, -1, -1, dtype=np.int64)
        self._free_count = 16

    @property
    def live(self) -> int:
        return len(self._place) - self._free_count

    def add(self, batch: Batch) -> Array:
        """Return a new entry for each row."""
        n = len(batch)
        if n > self._free_count:
            self._grow(n - self._free_count)
        entries = self._free[self._free_count - n : self._free_count].copy()
        self._free_count -= n
        self._place[entries] = self._store.append(batch.columns, n) + np.arange(n)
        self.start[entries] = np.minimum(batch.sync, batch.other)
        self.following[entries] = -1
        return entries

    def _grow(self, more: int) -> None:
        old = len(self._place)
        size = room_for(old + more)
        self._place = grown(self._place, size, -1)
        self.start = grown(self.start, size)
        self.following = grown(self.following, size, -1)
        free = np.empty(size, np.int64)
        free[: size - old] = np.arange(size - 1, old - 1, -1)
        free[size - old : size - old + self._free_count] = self._free[: self._free_count]
        self._free = free
        self._free_count += size - old

    def columns(self, entries: Array) -> dict[str, pl.Series]:
        """Return the payloads of entries."""
        return self._store.gather(self._place[entries])

    def free(self, entries: Array) -> None:
        """Give entries back; the store is compacted when most of it is dead."""
        self._place[entries] = -1
        self._free[self._free_count : self._free_count + len(entries)] = entries
        self._free_count += len(entries)
        if self._store.is_wasteful(self.live):
            live = np.flatnonzero(self._place >= 0)
            self._store.keep(self._place[live])
            self._place[live] = np.arange(len(live))

    @property
    def living(self) -> Array:
        """The entries that are in use."""
        return np.flatnonzero(self._place >= 0)

    def keep(self, entries: Array) -> Array:
        """Throw out all but these, of which the i-th is entry i from now on; return the new number of every old one.

        A chain must be kept as a whole, or not at all.
        """
        number_of, count = renumbering(entries, len(self._place)), len(entries)
        size = room_for(count)
        self._store.keep(self._place[entries])
        following = self.following[entries]
        self._place = grown(np.arange(count), size, -1)
        self.start = grown(self.start[entries], size)
        self.following = grown(np.where(following < 0, -1, number_of[following]), size, -1)
        self._free = grown(np.arange(size - 1, count - 1, -1, dtype=np.int64), size)
        self._free_count = size - count
        return number_of

    def save(self) -> OperatorState:
        return {
            "store": self._store.save(),
            "place": self._place,
            "start": self.start,
            "following": self.following,
            "free": self._free[: self._free_count],
        }

    def load(self, state: OperatorState) -> None:
        self._store.load(state["store"])
        self._place = owned(state["place"])
        self.start = owned(state["start"])
        self.following = owned(state["following"])
        self._free_count = len(state["free"])
        self._free = grown(owned(state["free"]), len(self._place))
