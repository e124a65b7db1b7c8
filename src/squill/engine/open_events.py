"""Start edges whose end has not come yet, found again by their end edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.buffers import grown
from squill.engine.edges import row_keys
from squill.engine.entries import Entries
from squill.engine.kernels.edges import open_and_close
from squill.engine.key_table import KeyTable
from squill.engine.operator import Belongs, OperatorState
from squill.engine.owned import owned
from squill.engine.time_queue import TimeQueue
from squill.errors import InternalError
from squill.time import INFINITY

__all__ = ["OpenEvents"]

Array = npt.NDArray[Any]


class OpenEvents:
    """Matches end edges with start edges of equal start and payload, first in, first out.

    `end_of[entry]` is the end of a matched event, infinity while it is open. Matched entries stay until
    they are freed.
    """

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self.entries = Entries(types)
        self._table = KeyTable([pl.Binary()])
        self._chains = np.zeros((16, 2), np.int64)
        self.end_of = np.full(16, INFINITY, np.int64)
        self._is_open = np.zeros(16, np.uint8)
        self._arrivals = Arrivals()

    def take(self, edges: Batch) -> Array:
        """Take start edges and end edges in order; return the entry of each row."""
        is_start = edges.other == INFINITY
        found = np.empty(len(edges), np.int64)
        begun = edges.filter(is_start)
        found[is_start] = entries = self.entries.add(begun)
        self._arrivals.add(entries, begun.sync, self)
        self.end_of = grown(self.end_of, len(self.entries.start), INFINITY)
        self._is_open = grown(self._is_open, len(self.entries.start))
        slots = self._table.slots([row_keys(edges)])
        self._chains = grown(self._chains, self._table.capacity)
        bad = open_and_close(
            edges.sync, is_start, slots, found, self._chains, self.entries.following, self.end_of, self._is_open
        )
        if bad >= 0:
            raise InternalError(f"an end edge at {edges.sync[bad]} ends no event")
        touched = np.unique(slots)
        self._table.release(touched[self._chains[touched, 0] == 0])
        return found

    @property
    def open_entries(self) -> Array:
        """The entries whose end has not come."""
        return np.flatnonzero(self._is_open)

    @property
    def earliest_open(self) -> int:
        """The start of the first event that is open; infinity when there is none."""
        return self._arrivals.first_open(self)

    def are_open(self, entries: Array, starts: Array) -> npt.NDArray[np.bool_]:
        """Return which entries are open and belong to events of these starts."""
        found: npt.NDArray[np.bool_] = (self._is_open[entries] != 0) & (self.entries.start[entries] == starts)
        return found

    def free(self, entries: Array) -> None:
        self._is_open = grown(self._is_open, len(self.entries.start))
        self._is_open[entries] = 0
        self.entries.free(entries)

    def keep(self, belongs: Belongs) -> None:
        """Throw out open events that do not belong here."""
        entries = self.open_entries
        self.forget(entries[~belongs(self.entries.columns(entries))])

    def keep_waiting(self, queue: TimeQueue, belongs: Belongs) -> None:
        """Throw out events that do not belong here; all that there are wait in this queue, by entry."""
        waiting = queue.pop_until(INFINITY)
        if waiting is not None:
            stays = belongs(self.entries.columns(waiting.other))
            queue.add(waiting.filter(stays))
            self.forget(waiting.other[~stays])

    def forget(self, entries: Array) -> None:
        """Throw out events, of those that are open all equal ones; their ends will not come."""
        slots = np.unique(self._slot_of_open()[entries])
        slots = slots[slots >= 0]
        self._chains[slots] = 0  # equal events wait in one chain
        if len(slots):
            self._table.release(slots)
        self.free(entries)

    def _slot_of_open(self) -> Array:
        """Return the slot in whose chain each entry is; −1 for those that are in none."""
        slot_of = np.full(len(self.entries.start), -1, np.int64)
        slots = np.flatnonzero(self._chains[:, 0])
        entries = self._chains[slots, 0] - 1
        while len(slots):
            slot_of[entries] = slots
            entries = self.entries.following[entries]
            slots, entries = slots[entries >= 0], entries[entries >= 0]
        return slot_of

    def save(self) -> OperatorState:
        return {
            "entries": self.entries.save(),
            "table": self._table.save(),
            "chains": self._chains,
            "end_of": self.end_of,
            "is_open": self._is_open,
        }

    def load(self, state: OperatorState) -> None:
        self.entries.load(state["entries"])
        self._table.load(state["table"])
        self._chains = owned(state["chains"])
        self.end_of = owned(state["end_of"])
        self._is_open = owned(state["is_open"])
        entries = self.open_entries
        starts = self.entries.start[entries]
        order = np.argsort(starts, kind="stable")
        self._arrivals = Arrivals()
        self._arrivals.add(entries[order], starts[order], self)


class Arrivals:
    """Entries in the order in which their events start, which is the order in which start edges come.

    Those that are closed are passed over once, so that asking for the first one that is open costs no more
    than what has changed since.
    """

    def __init__(self) -> None:
        self._entries = np.empty(16, np.int64)
        self._starts = np.empty(16, np.int64)
        self._head = self._tail = 0

    def __len__(self) -> int:
        return self._tail - self._head

    def add(self, entries: Array, starts: Array, events: OpenEvents) -> None:
        if self._tail + len(entries) > len(self._entries):
            self._make_room(len(entries), events)
        end = self._tail + len(entries)
        self._entries[self._tail : end] = entries
        self._starts[self._tail : end] = starts
        self._tail = end

    def _make_room(self, more: int, events: OpenEvents) -> None:
        """Throw out what is closed; half of the room is free then."""
        entries, starts = self._entries[self._head : self._tail], self._starts[self._head : self._tail]
        kept = events.are_open(entries, starts)
        self._entries, self._starts = entries[kept], starts[kept]
        self._head, self._tail = 0, len(self._entries)
        room = 2 * (self._tail + more)
        self._entries, self._starts = grown(self._entries, room, None), grown(self._starts, room, None)

    def first_open(self, events: OpenEvents) -> int:
        """Return the start of the first entry that is open; infinity when there is none."""
        step = 16
        while self._head < self._tail:
            stop = min(self._head + step, self._tail)
            entries, starts = self._entries[self._head : stop], self._starts[self._head : stop]
            # An entry given to another event since is not this one, unless that starts as early.
            open_ones = np.flatnonzero(events.are_open(entries, starts))
            if len(open_ones):
                self._head += int(open_ones[0])
                return int(starts[open_ones[0]])
            self._head = stop
            step *= 2
        return INFINITY
