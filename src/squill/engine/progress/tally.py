"""How many rows come and go at which progress point: what early answers report, and which points there are."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np

from squill.engine.batch import Int64s
from squill.time import INFINITY

__all__ = ["Tally"]


class Tally:
    """Counts of one input; its readers, on whichever threads, add theirs and say when they are through.

    Examples
    --------
    >>> tally = Tally(readers=1)
    >>> tally.add(np.array([0, 0, 3]), np.array([3, INFINITY, INFINITY]))
    >>> tally.finish()
    >>> tally.rows, [tally.alive(p) for p in tally.points().tolist()]
    (3, [2, 2])
    """

    def __init__(self, readers: int = 1) -> None:
        self.rows = 0
        self._readers = readers
        self._begun: set[int] = set()
        self._changes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._points = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)

    @property
    def missing(self) -> int:
        """How many readers are not through."""
        return self._readers

    def begin(self, reader: int) -> bool:
        """Say who begins to read; return False when somebody counts the same rows already."""
        with self._lock:
            is_first = reader not in self._begun
            self._begun.add(reader)
            return is_first

    @property
    def is_complete(self) -> bool:
        return self._readers == 0

    def add(self, starts: Int64s, ends: Int64s | None) -> None:
        """Count rows."""
        self.add_counts(len(starts), _changes(starts, 1))
        if ends is not None:
            self.add_counts(0, _changes(ends[ends != INFINITY], -1))

    def add_counts(self, rows: int, changes: Iterable[tuple[int, int]]) -> None:
        """Add what was counted elsewhere: so many rows, and how many more are there from which point on."""
        with self._lock:
            self.rows += rows
            for point, change in changes:
                self._changes[point] = self._changes.get(point, 0) + change

    def take_counts(self) -> tuple[int, list[tuple[int, int]]]:
        """Return what was counted, and count from zero again."""
        with self._lock:
            rows, changes = self.rows, list(self._changes.items())
            self.rows, self._changes = 0, {}
            return rows, changes

    def finish(self) -> None:
        """Say that one reader has read all its rows."""
        with self._lock:
            if self._readers == 1:
                self._points = np.array(sorted(self._changes), np.int64)
                changes = np.array([self._changes[point] for point in self._points.tolist()], np.int64)
                self._counts = np.cumsum(changes)
            self._readers -= 1

    @property
    def changes(self) -> list[tuple[int, int]]:
        """The points at which rows come or go, in order, and by how many there are more then."""
        with self._lock:
            return sorted(self._changes.items())

    def points(self) -> Int64s:
        """Return the points at which rows come or go, in order."""
        return self._points

    def alive(self, point: int) -> int:
        """Return how many rows are there at this point."""
        place = int(np.searchsorted(self._points, point, side="right"))
        return int(self._counts[place - 1]) if place else 0


def _changes(points: Int64s, sign: int) -> Iterable[tuple[int, int]]:
    found, counts = np.unique(points, return_counts=True)
    return zip(found.tolist(), (sign * counts).tolist(), strict=True)
