"""The rows of a relational input by key: collected once, then only read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.columns import read_only, taken
from squill.engine.kernels.lookup import expand_matches, group_by_slot
from squill.engine.large_arrays import large_array
from squill.engine.operator import Belongs, OperatorState
from squill.engine.pair_keys import PairKeys
from squill.plan.nodes import TwoInputs

__all__ = ["LookupTable"]

Array = npt.NDArray[Any]
MOST_PAIRS = 262_144
"""How many pairs are made at a time, however many rows a key has."""


class LookupTable:
    """Rows lie by slot: those of slot s are places starts[s] to starts[s + 1]. Rows with a null key are left out.

    ``is_unique``  no key has two rows: a row's place is its slot.
    """

    def __init__(self, node: TwoInputs, port: int, columns: Sequence[str]) -> None:
        self._port = port
        self._names = list(columns)
        self._keys = PairKeys(node)
        self._codes: list[Array] = []
        self._held: list[Batch] = []
        self._rows = 0
        self._columns: dict[str, pl.Series] = {}
        self._starts: Array | None = np.zeros(1, np.int64)
        self.is_unique = False
        self.is_complete = False

    def __len__(self) -> int:
        return self._rows

    def expect(self, rows: int) -> None:
        """Make room for so many rows, before the first is added."""
        self._keys.expect(rows)

    def add(self, batch: Batch) -> None:
        batch = self._keys.without_null_keys(batch, self._port)
        self._codes.append(self._codes_of(batch))
        self._held.append(Batch.relational({name: batch.columns[name] for name in self._names}, len(batch)))
        self._rows += len(batch)

    def rows(self) -> Iterator[Batch]:
        """Yield what was added, with all columns that are needed, and let go of it."""
        while self._held:
            codes, batch = self._codes.pop(0), self._held.pop(0)
            yield Batch.relational({**self._key_columns(codes), **batch.columns}, len(batch))

    def _key_columns(self, codes: Array) -> dict[str, pl.Series]:
        return self._keys.columns(codes, self._port)

    def complete(self) -> None:
        """Put the rows in their places; nothing is added any more."""
        self.is_complete = True
        if not self._rows:
            self._starts = np.zeros(self._keys.capacity + 1, np.int64)
            return
        codes, rows = np.concatenate(self._codes), Batch.concat(self._held)
        self._codes, self._held = [], []
        order = self._arrange(codes)
        self._columns = rows.columns if order is None else taken(rows.columns, order)

    def _codes_of(self, batch: Batch) -> Array:
        """Return one integer per row that tells keys apart."""
        return self._keys.slots(batch, self._port)

    def _arrange(self, slots: Array) -> Array | None:
        """Say where each slot's rows lie; return the order that brings them there, None for as they are."""
        # Slots are given in the order of first appearance, so unique keys lie in order already.
        self.is_unique = len(slots) == self._keys.capacity
        if self.is_unique:
            self._starts = None
            return None
        self._starts = np.zeros(self._keys.capacity + 1, np.int64)
        order = large_array(len(slots), np.int64)
        group_by_slot(read_only(slots), self._starts, order)
        return order

    @property
    def _bounds(self) -> Array:
        """Where the rows of each slot begin, and where they end; of unique keys few ask for it."""
        if self._starts is None:
            self._starts = np.arange(self._rows + 1)
        return self._starts

    def find(self, batch: Batch) -> Array:
        """Return the slots of the other input's rows, −1 for keys that no row here has."""
        return self._keys.find(batch, 1 - self._port)

    def pairs(self, batch: Batch) -> Iterator[tuple[Array | None, Array]]:
        """Yield (rows of the other input, None for all; places here) of all matches, in the order of the rows."""
        if self.is_unique:
            yield self._found(batch)
        else:
            yield from self.matches(self.find(batch))

    def _found(self, batch: Batch) -> tuple[Array | None, Array]:
        """Return the rows whose keys are here, None for all, and their slots."""
        return self._keys.find_rows(batch, 1 - self._port)

    def matches(self, slots: Array) -> Iterator[tuple[Array, Array]]:
        """Yield (rows of the probe, places here) of all pairs, in the order of the probe."""
        row, skip = 0, 0
        while row < len(slots):
            rows, places = np.empty(MOST_PAIRS, np.int64), np.empty(MOST_PAIRS, np.int64)
            row, skip, count = expand_matches(read_only(slots), self._bounds, row, skip, rows, places)
            if count:
                yield rows[:count], places[:count]

    def keep(self, belongs: Belongs) -> None:
        """Throw out rows of other shards, where that can be told; they meet nobody, but take their place."""
        kept = self._keys.keep([belongs, belongs]) if self.is_complete else None
        if kept is not None:
            counts = np.diff(self._bounds)[kept]
            starts = np.concatenate([[0], np.cumsum(counts)])
            places = np.arange(starts[-1]) + np.repeat(self._bounds[kept] - starts[:-1], counts)
            self._columns, self._starts, self._rows = taken(self._columns, places), starts, len(places)

    def columns(self, places: Array) -> dict[str, pl.Series]:
        return taken(self._columns, places)

    def save(self) -> OperatorState:
        return {
            "keys": self._keys.save(),
            "codes": list(self._codes),
            "held": list(self._held),
            "rows": self._rows,
            "columns": dict(self._columns),
            "starts": self._bounds,
            "is_unique": self.is_unique,
            "is_complete": self.is_complete,
        }

    def load(self, state: OperatorState) -> None:
        self._keys.load(state["keys"])
        self._codes, self._held = list(state["codes"]), list(state["held"])
        self._rows = state["rows"]
        self._columns = dict(state["columns"])
        self._starts = state["starts"]
        self.is_unique = state["is_unique"]
        self.is_complete = state["is_complete"]
