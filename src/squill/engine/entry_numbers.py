"""Entries of rows whose ends follow by number, found again by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Int64s
from squill.engine.buffers import grown
from squill.engine.operator import OperatorState
from squill.engine.owned import owned

__all__ = ["EntryNumbers"]

Array = npt.NDArray[Any]
SLACK = 4_096
"""How many numbers of rows that are gone are put up with."""


class EntryNumbers:
    """Rows come with growing numbers, so that one is found by bisection; ends may come before their time.

    Examples
    --------
    >>> numbers = EntryNumbers()
    >>> numbers.add(np.array([3, 5, 6]), np.array([0, 1, 2]))
    >>> numbers.close(np.array([5, 4, 3]), np.array([10, 10, 20]))
    >>> numbers.ended(11), len(numbers)
    ((array([10]), array([1])), 2)
    """

    def __init__(self) -> None:
        self._ids = np.empty(16, np.int64)
        self._entries = np.empty(16, np.int64)
        self._size = 0
        self._gone = 0
        self._closed_ids = np.empty(0, np.int64)
        self._closed_ends = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._size - self._gone

    @property
    def has_closed(self) -> bool:
        """Whether ends are known that were not asked for yet."""
        return len(self._closed_ids) > 0

    def add(self, ids: Int64s, entries: Array) -> None:
        """Take rows; their numbers are above all numbers seen."""
        end = self._size + len(ids)
        self._ids, self._entries = grown(self._ids, end, None), grown(self._entries, end, None)
        self._ids[self._size : end] = ids
        self._entries[self._size : end] = entries
        self._size = end

    def close(self, ids: Int64s, ends: Int64s) -> None:
        """Take ends; of rows that are still to come, of rows that are here, and of some that never were."""
        self._closed_ids = np.concatenate([self._closed_ids, ids])
        self._closed_ends = np.concatenate([self._closed_ends, ends])

    def ended(self, bound: int) -> tuple[Int64s, Array]:
        """Return the ends before `bound` and the entries of their rows, all of which have come, and forget them."""
        due = self._closed_ends < bound
        ids, ends = self._closed_ids[due], self._closed_ends[due]
        self._closed_ids, self._closed_ends = self._closed_ids[~due], self._closed_ends[~due]
        # In order they are found several times as fast: each search goes where the last one went.
        order = np.argsort(ids)
        ids, ends = ids[order], ends[order]
        known = self._ids[: self._size]
        places = np.searchsorted(known, ids)
        here = places < len(known)
        here[here] = known[places[here]] == ids[here]
        places, ends = places[here], ends[here]
        entries = self._entries[places].copy()
        stays = entries >= 0
        self._entries[places] = -1
        self._gone += int(np.count_nonzero(stays))
        self._compact()
        return ends[stays], entries[stays]

    def forget(self, entries: Array) -> None:
        """Throw out rows whose ends are of no interest any more."""
        gone = np.isin(self._entries[: self._size], entries)
        self._entries[: self._size][gone] = -1
        self._gone += int(np.count_nonzero(gone))
        self._compact()

    def _compact(self) -> None:
        if 2 * self._gone > self._size + SLACK:
            stays = np.flatnonzero(self._entries[: self._size] >= 0)
            self._ids, self._entries = self._ids[stays], self._entries[stays]
            self._size, self._gone = len(stays), 0

    def save(self) -> OperatorState:
        return {
            "ids": self._ids[: self._size],
            "entries": self._entries[: self._size],
            "closed_ids": self._closed_ids,
            "closed_ends": self._closed_ends,
        }

    def load(self, state: OperatorState) -> None:
        self._ids, self._entries = owned(state["ids"]), owned(state["entries"])
        self._size = len(self._ids)
        self._gone = int(np.count_nonzero(self._entries < 0))
        self._closed_ids, self._closed_ends = owned(state["closed_ids"]), owned(state["closed_ends"])
