"""Rows that live until their key's next answer, told to the consumer in the form it asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.buffers import grown
from squill.engine.columns import taken
from squill.engine.operator import EDGES, NUMBERED, OperatorState
from squill.engine.owned import owned
from squill.engine.row_store import RowStore
from squill.time import INFINITY

__all__ = ["OpenAnswers"]

Array = npt.NDArray[Any]
Columns = dict[str, pl.Series]
Closed = tuple[Int64s, Int64s]


class OpenAnswers:
    """The rows of one answer have numbers in a row; a slot remembers when its answer began and which these are.

    `keys_of` gives the key columns of slots. With EDGES the payload of open rows is held, because their end
    edges carry it again. Answers come in time order.
    """

    def __init__(self, keys_of: Callable[[Array], Columns], types: Mapping[str, pl.DataType]) -> None:
        self._keys_of = keys_of
        self._open: dict[int, tuple[int, int, int, int]] = {}  # slot → start, first number, rows, place in _begun
        self._next_id = 0
        self._first_id = 0  # of the rows that have not left
        self._live = 0
        self._held = RowStore(types)
        self._held_ids = np.empty(0, np.int64)
        self._clear()

    def _clear(self) -> None:
        # What began and ended since rows last left: (time, slot, start or end, first number, rows).
        self._changes: list[tuple[int, int, int, int, int]] = []
        self._first_id = self._next_id

    def __contains__(self, slot: int) -> bool:
        return slot in self._open

    def __len__(self) -> int:
        """How many rows are open."""
        return self._live

    def replace(self, slot: int, t: int, rows: int) -> None:
        """End the slot's answer at t and begin one of this many rows, which are taken in this order."""
        before = self._open.pop(slot, None)
        if before is not None:
            start, first, count, place = before
            self._live -= count
            if start == t:  # replaced within its instant: it was never there
                self._changes[place] = (t, slot, INFINITY, first, 0)
            else:
                self._changes.append((t, slot, start, first, count))
        if rows:
            self._open[slot] = (t, self._next_id, rows, len(self._changes))
            self._changes.append((t, slot, INFINITY, self._next_id, rows))
            self._next_id += rows
            self._live += rows

    def take(self, columns: Columns, demand: str) -> tuple[Batch, Closed | None] | None:
        """Return the changes, given the columns of all rows that began, and (numbers, ends) if told by number."""
        if not self._changes:
            return None
        changes = np.array(self._changes, np.int64)
        counts = changes[:, 4]
        rows = np.repeat(changes[:, :4], counts, axis=0)
        ids = rows[:, 3] + _places(counts)
        sync, slots, other = (np.ascontiguousarray(rows[:, i]) for i in range(3))
        if demand == EDGES:
            answer: tuple[Batch, Closed | None] = self._edges(sync, other, slots, ids, columns), None
        else:
            answer = self._starts(sync, other, slots, ids, columns, demand)
        self._clear()
        return answer

    def _edges(self, sync: Int64s, other: Int64s, slots: Array, ids: Int64s, columns: Columns) -> Batch:
        began = self._next_id - self._first_id
        place = self._held.append(columns, began)
        self._held_ids = grown(self._held_ids, place + began)
        self._held_ids[place : place + began] = np.arange(self._first_id, self._next_id)
        shown = self._held.gather(np.searchsorted(self._held_ids[: len(self._held)], ids))
        self._compact()
        return Batch(sync, other, {**self._keys_of(slots.astype(np.int32)), **shown})

    def _starts(
        self, sync: Int64s, other: Int64s, slots: Array, ids: Int64s, columns: Columns, demand: str
    ) -> tuple[Batch, Closed | None]:
        begins = other == INFINITY
        begun = ids[begins]
        if len(begun) < self._next_id - self._first_id:
            columns = taken(columns, begun - self._first_id)
        keys = self._keys_of(slots[begins].astype(np.int32))
        batch = Batch(sync[begins], INFINITY, {**keys, **columns})
        if demand != NUMBERED:
            return batch, None
        batch.ids = begun
        return batch, (ids[~begins], sync[~begins])

    def _compact(self) -> None:
        """Keep only the rows that are open, once most are not."""
        if self._held.is_wasteful(self._live):
            self._keep_open()

    def _keep_open(self) -> None:
        answers = np.array(sorted(answer[1:3] for answer in self._open.values()), np.int64).reshape(-1, 2)
        ids = np.repeat(answers[:, 0], answers[:, 1]) + _places(answers[:, 1])
        self._held.keep(np.searchsorted(self._held_ids[: len(self._held)], ids))
        self._held_ids = ids

    def keep_slots(self, kept: Array) -> None:
        """Forget the answers of all but these slots, of which the i-th is slot i from now on."""
        self._open = {i: self._open[slot] for i, slot in enumerate(kept.tolist()) if slot in self._open}
        self._live = sum(rows for _, _, rows, _ in self._open.values())
        if len(self._held):  # what is told by number is held by who is told
            self._keep_open()

    def save(self) -> OperatorState:
        return {
            "open": dict(self._open),
            "live": self._live,
            "next_id": self._next_id,
            "held": self._held.save(),
            "held_ids": self._held_ids[: len(self._held)],
        }

    def load(self, state: OperatorState) -> None:
        self._open = dict(state["open"])
        self._live = state["live"]
        self._next_id = state["next_id"]
        self._held.load(state["held"])
        self._held_ids = owned(state["held_ids"])
        self._clear()


def _places(counts: Int64s) -> Int64s:
    """Return 0 … n − 1 for each count n, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)
