"""Ends that follow their rows by number, from the first row that is not done with."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch, Int64s
from squill.engine.buffers import grown, trimmed
from squill.engine.kernels.edges import first_open, write_ends
from squill.engine.large_arrays import large_array
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.time import INFINITY

__all__ = ["LateEnds"]

FIRST_ENDS = 1 << 16
GROWTH = 4
"""Ends are given so many times the room that they had: to grow is to copy."""
DROPPED = -INFINITY
"""The end of a row that was filtered out on its way: whatever it is, nobody asks for it."""


class LateEnds:
    """The ends of rows whose numbers grow; what is before some number can be forgotten, and its room is used again.

    Examples
    --------
    >>> ends = LateEnds()
    >>> ends.add(Batch(np.array([1, 2, 3]), INFINITY, ids=range(3)))
    >>> ends.close(np.array([2, 0]), np.array([7, 8]))
    >>> ends.first_open(), ends.of(range(0, 1)).tolist()
    (1, [8])
    >>> ends.forget(1)
    >>> ends.close(np.array([1]), np.array([9]))
    >>> ends.first_open(), ends.of(range(1, 3)).tolist()
    (3, [9, 7])
    """

    def __init__(self) -> None:
        self._ends = np.empty(0, np.int64)
        self._first = 0
        """The number of the first end in the array."""
        self._open = 0
        """No row before this number is open."""
        self.numbered = 0
        """The numbers of all rows that were added are below it."""

    def add(self, batch: Batch) -> None:
        """Take rows, at least one; their numbers are above all numbers seen."""
        ids = batch.ids
        assert ids is not None
        last = int(ids[-1]) + 1
        needed = last - self._first
        if needed > len(self._ends):
            self._ends = grown(self._ends, max(GROWTH * len(self._ends), needed, FIRST_ENDS), None)
        new = self._ends[self.numbered - self._first : needed]
        if isinstance(ids, range) and ids.start == self.numbered:
            new[:] = INFINITY if batch.duration == INFINITY else batch.other
        else:
            new[:] = DROPPED
            new[np.asarray(ids) - self.numbered] = INFINITY if batch.duration == INFINITY else batch.other
        self.numbered = last

    def close(self, ids: Int64s, ends: Int64s) -> None:
        """Note the ends of rows; numbers that are forgotten, or never came, are those of rows that nobody asks for."""
        write_ends(self._ends, ids, ends, self._first, self.numbered)

    def first_open(self) -> int:
        """Return the number before which no row is open."""
        self._open = self._first + int(first_open(self._ends, self._open - self._first, self.numbered - self._first))
        return self._open

    def of(self, ids: Int64s | range) -> Int64s:
        """Return the ends of rows, in an array of their own."""
        if not isinstance(ids, range):
            return self._ends[ids - self._first]
        found = large_array(len(ids), np.int64)
        found[:] = self._ends[ids.start - self._first : ids.stop - self._first]
        return found

    def of_last(self, ids: Int64s | range) -> Int64s:
        """Return the ends of rows when nothing follows any more: where they lie, if they lie together."""
        if not isinstance(ids, range):
            return self.of(ids)
        self._ends = trimmed(self._ends, self.numbered - self._first)
        return self._ends[ids.start - self._first : ids.stop - self._first]

    def forget(self, before: int) -> None:
        """Let go of the ends of rows below a number, which are not open.

        They are moved over only when they are half of all: each end is moved O(1) times.
        """
        count, kept = before - self._first, self.numbered - before
        if count > kept:
            self._ends[:kept] = self._ends[count : count + kept]
            self._first = before

    def save(self) -> OperatorState:
        """Return what `load` takes."""
        return {"ends": self._ends[: self.numbered - self._first], "first": self._first, "numbered": self.numbered}

    def load(self, state: OperatorState) -> None:
        """Take what `save` has given."""
        self._ends = owned(state["ends"])
        self._first = self._open = state["first"]
        self.numbered = state["numbered"]
