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
from squill.engine.operator import OperatorState
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

    def take(self, edges: Batch) -> Array:
        """Take start edges and end edges in order; return the entry of each row."""
        is_start = edges.other == INFINITY
        found = np.empty(len(edges), np.int64)
        found[is_start] = self.entries.add(edges.filter(is_start))
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
        entries = self.open_entries
        return int(self.entries.start[entries].min()) if len(entries) else INFINITY

    def free(self, entries: Array) -> None:
        self._is_open = grown(self._is_open, len(self.entries.start))
        self._is_open[entries] = 0
        self.entries.free(entries)

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
        self._chains = state["chains"].copy()
        self.end_of = state["end_of"].copy()
        self._is_open = state["is_open"].copy()
