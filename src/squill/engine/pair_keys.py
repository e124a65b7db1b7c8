"""One table of keys for both inputs of a join: rows that may match have the same slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.belongs import Belongs
from squill.engine.columns import read_only
from squill.engine.kernels.join import emptied_slots
from squill.engine.key_table import KeyTable
from squill.engine.operator import OperatorState
from squill.plan.nodes import TwoInputs

__all__ = ["PairKeys"]

Array = npt.NDArray[Any]


class PairKeys:
    """Slots by key for both sides; without keys all rows share one slot.

    A null in a column of `on=` matches nothing, so a row with one may be dropped where only matches count; where
    it is kept, it gets a slot that no row of the other side ever has.
    """

    def __init__(self, node: TwoInputs) -> None:
        matching = node.matching
        self._names = (matching.left_keys, matching.right_keys)
        self._not_null = (matching.left_on, matching.right_on)
        types = [node.left.schema[name] for name in matching.left_keys]
        self._table = KeyTable(types) if types else None

    @property
    def capacity(self) -> int:
        return 1 if self._table is None else self._table.capacity

    @property
    def live(self) -> int:
        return 1 if self._table is None else self._table.live

    def expect(self, keys: int) -> None:
        """Make room for about so many keys before the first comes."""
        if self._table is not None:
            self._table.expect(keys)

    def without_null_keys(self, batch: Batch, port: int) -> Batch:
        """Return the rows that can match anything."""
        nulls = [batch.columns[name] for name in self._not_null[port] if batch.columns[name].null_count()]
        if not nulls:
            return batch
        keep = np.ones(len(batch), np.bool_)
        for column in nulls:
            keep &= column.is_not_null().to_numpy()
        return batch.filter(keep)

    def slots(self, batch: Batch, port: int) -> Array:
        """Return the slot of each row."""
        if self._table is None:
            return np.zeros(len(batch), np.int32)
        names = self._names[port]
        return self._table.slots([batch.columns[name] for name in names], batch.hash_of(names))

    def find(self, batch: Batch, port: int) -> Array:
        """Return the slot of each row whose key has one, −1 for the others."""
        if self._table is None:
            return np.zeros(len(batch), np.int32)
        names = self._names[port]
        return self._table.find([batch.columns[name] for name in names], batch.hash_of(names))

    def find_rows(self, batch: Batch, port: int) -> tuple[Array | None, Array]:
        """Return the rows whose keys have a slot, None for all, and their slots."""
        if self._table is None:
            return None, np.zeros(len(batch), np.int32)
        names = self._names[port]
        return self._table.find_rows([batch.columns[name] for name in names], batch.hash_of(names))

    def columns(self, slots: Array, port: int) -> dict[str, pl.Series]:
        """Return the keys of slots, as columns of an input, in the types of the left one."""
        names = self._names[port]
        if self._table is None:
            return {}
        return dict(zip(names, self._table.gather(slots, names), strict=True))

    def keep(self, belongs: Sequence[Belongs | None]) -> Array | None:
        """Forget the keys of other shards; return the slots that stay, the i-th of which is slot i from now on.

        None, and nothing changes, where keys do not tell whose they are, or one input has rows of all shards.
        """
        left, right = belongs
        if self._table is None or left is None or right is None:
            return None
        if not left.can_ask(self._names[0]) or left.keys != right.keys or self._names[0] != self._names[1]:
            return None
        living = self._table.living
        names = list(self._names[0])
        kept = living[left(dict(zip(names, self._table.gather(living, names), strict=True)))]
        self._table.keep(kept)
        return kept

    def release(self, slots: Array) -> None:
        """Let go of these keys."""
        if self._table is not None and len(slots):
            self._table.release(slots)

    def release_empty(self, slots: Array, heads: Array) -> None:
        """Let go of those of these keys that have nothing alive on either side (`heads` is 0)."""
        if self._table is not None and len(slots):
            empty = np.empty(len(slots), np.int32)
            count = emptied_slots(read_only(slots), heads, empty)
            if count:
                self._table.release(empty[:count])

    def save(self) -> OperatorState:
        return {"table": None if self._table is None else self._table.save()}

    def load(self, state: OperatorState) -> None:
        if self._table is not None:
            self._table.load(state["table"])
