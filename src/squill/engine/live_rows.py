"""One input's rows as what changes with them: each begins once and, unless it is endless, ends once.

Intervals end when time comes to their end, start edges when their end edge comes; operators that look at what
is alive need not know which it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch, Int64s, numbers_of
from squill.engine.buffers import grown
from squill.engine.entry_numbers import EntryNumbers
from squill.engine.open_events import OpenEvents
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.engine.time_queue import TimeQueue
from squill.time import INFINITY

__all__ = ["Changes", "LiveRows"]

Array = npt.NDArray[Any]
SLACK = 4_096
"""How many forgotten rows are put up with."""


class Changes(NamedTuple):
    """Begins and ends of entries, in no order."""

    time: Array
    entry: Array
    is_start: Array


class LiveRows:
    """Numbers (entries) for rows from their begin until `free`; payloads are kept by entry."""

    def __init__(self, types: Mapping[str, pl.DataType], *, ends_known: bool) -> None:
        self._open = OpenEvents(types)
        self._ends_known = ends_known
        self._due = TimeQueue()
        self._numbers = EntryNumbers()
        self._end = np.zeros(16, np.int64)
        self._is_forgotten = np.zeros(16, np.uint8)
        self._forgotten = 0

    @property
    def live(self) -> int:
        return self._open.entries.live

    @property
    def capacity(self) -> int:
        return len(self._open.entries.start)

    @property
    def start(self) -> Array:
        """When each entry began."""
        return self._open.entries.start

    def columns(self, entries: Array) -> dict[str, pl.Series]:
        return self._open.entries.columns(entries)

    @property
    def has_due(self) -> bool:
        """True when rows wait for an end that is known."""
        return len(self._due) > 0 or self._numbers.has_closed

    def close(self, ids: Int64s, ends: Int64s) -> None:
        """Take the ends of rows that come, or have come, with these numbers."""
        self._numbers.close(ids, ends)

    def take(self, batch: Batch | None, bound: int) -> tuple[Changes, Array]:
        """Take the rows of whole instants before `bound`; return all changes before it, and each row's entry."""
        entries = np.empty(0, np.int64) if batch is None else self._enter(batch)
        times, numbers, starts = [], [], []
        if batch is not None:
            times.append(batch.sync)
            numbers.append(entries)
            starts.append(batch.other > batch.sync)
        # In the queue `sync` is the end and `other` the entry.
        over = self._due.pop_until(bound - 1 if bound < INFINITY else INFINITY - 1)
        if over is not None:
            times.append(over.sync)
            numbers.append(over.other)
            starts.append(np.zeros(len(over), np.bool_))
        if self._numbers.has_closed:
            ends, ended = self._numbers.ended(bound)
            times.append(ends)
            numbers.append(ended)
            starts.append(np.zeros(len(ends), np.bool_))
        if not times:
            return Changes(entries, entries, np.empty(0, np.bool_)), entries
        time, entry, is_start = np.concatenate(times), np.concatenate(numbers), np.concatenate(starts)
        if self._forgotten:
            time, entry, is_start = self._without_forgotten(time, entry, is_start)
        return Changes(time, entry, is_start), entries

    def _enter(self, batch: Batch) -> Array:
        is_interval = (batch.other > batch.sync) & (batch.other != INFINITY)
        if batch.ids is not None:
            entries = self._open.entries.add(batch)
            self._numbers.add(numbers_of(batch), entries)
        elif self._ends_known or is_interval.all():
            entries = self._open.entries.add(batch)
            self._end = grown(self._end, self.capacity)
            self._end[entries] = batch.other
        else:
            entries = np.empty(len(batch), np.int64)
            entries[~is_interval] = self._open.take(batch.filter(~is_interval))
            entries[is_interval] = self._open.entries.add(batch.filter(is_interval))
        if is_interval.any():
            self._due.add(Batch(batch.other[is_interval], entries[is_interval]))
        return entries

    def free(self, entries: Array) -> None:
        """Give back the entries of rows that are over."""
        if len(entries):
            self._open.free(entries)

    # -- rows that an operator is done with before their end comes ---------------------------------------------

    def forget(self, entries: Array) -> None:
        """Let go of rows that have not ended; their ends will not be told.

        An interval's place is used again once its end has come, or once such rows are in the majority.
        """
        if not len(entries):
            return
        if self._ends_known:
            endless = self._end[entries] == INFINITY
            self.free(entries[endless])
            entries = entries[~endless]
        self._is_forgotten = grown(self._is_forgotten, self.capacity)
        self._is_forgotten[entries] = 1
        self._forgotten += len(entries)
        if self._ends_known and self._forgotten > SLACK and 2 * self._forgotten > self.live:
            self._purge()

    def _purge(self) -> None:
        due = self._due.pop_until(INFINITY)
        if due is not None:
            gone = self._is_forgotten[due.other] == 1
            self._give_back(due.other[gone])
            self._due.add(due.filter(~gone))

    def _without_forgotten(self, time: Array, entry: Array, is_start: Array) -> tuple[Array, Array, Array]:
        self._is_forgotten = grown(self._is_forgotten, self.capacity)
        gone = self._is_forgotten[entry] == 1
        self._give_back(entry[gone])
        return time[~gone], entry[~gone], is_start[~gone]

    def _give_back(self, entries: Array) -> None:
        self._is_forgotten[entries] = 0
        self._forgotten -= len(entries)
        self.free(entries)

    def keep(self, stays: Array) -> None:
        """Throw out rows, those for whose entries `stays` is false; entries keep their numbers.

        Rows that were forgotten before stay until their end comes: nobody asks any more whose they are.
        """
        self._is_forgotten = grown(self._is_forgotten, self.capacity)
        if self._ends_known:
            self._purge()
        living = self._open.entries.living
        gone = living[~stays[living] & (self._is_forgotten[living] == 0)]
        due = self._due.pop_until(INFINITY)
        if due is not None:
            self._due.add(due.filter(~np.isin(due.other, gone)))
        self._open.forget(gone)
        self._numbers.forget(gone)

    def save(self) -> OperatorState:
        return {
            "open": self._open.save(),
            "due": self._due.save(),
            "end": self._end,
            "forgotten": self._is_forgotten,
            "numbers": self._numbers.save(),
        }

    def load(self, state: OperatorState) -> None:
        self._open.load(state["open"])
        self._due.load(state["due"])
        self._end = owned(state["end"])
        self._is_forgotten = owned(state["forgotten"])
        self._forgotten = int(self._is_forgotten.sum())
        self._numbers.load(state["numbers"])
