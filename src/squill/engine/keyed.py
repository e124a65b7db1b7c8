"""Operators that work per key: slots for rows, one slot for all when there are no keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.belongs import Belongs, renumbering
from squill.engine.key_table import KeyTable
from squill.engine.operator import Operator, OperatorState
from squill.plan.schema import Schema

__all__ = ["KeySlots", "KeyedOperator"]

Array = npt.NDArray[Any]


class KeySlots:
    """`KeyTable` by column name, with a single slot for a stream without keys."""

    def __init__(self, keys: Sequence[str], schema: Schema) -> None:
        self._names = list(keys)
        self._table = KeyTable([schema[name] for name in keys]) if keys else None

    @property
    def capacity(self) -> int:
        return 1 if self._table is None else self._table.capacity

    @property
    def live(self) -> int:
        return 1 if self._table is None else self._table.live

    def slots(self, batch: Batch) -> Array:
        if self._table is None:
            return np.zeros(len(batch), np.int32)
        return self._table.slots([batch.columns[name] for name in self._names], batch.hash_of(self._names))

    def tally(self, batch: Batch) -> tuple[Array, Array] | None:
        """Return slots and how many rows have each, some perhaps twice; None where rows are not counted quickly."""
        if self._table is None:
            return np.zeros(1, np.int32), np.array([len(batch)])
        return self._table.tally([batch.columns[name] for name in self._names])

    def columns(self, slots: Array) -> dict[str, pl.Series]:
        """Return the key columns of slots."""
        if self._table is None:
            return {}
        return dict(zip(self._names, self._table.gather(slots, self._names), strict=True))

    def keep(self, belongs: Belongs) -> Array | None:
        """Forget the keys of other shards; return the slots that stay, the i-th of which is slot i from now on.

        None, and nothing changes, where keys do not tell whose they are.
        """
        if self._table is None or not belongs.can_ask(self._names):
            return None
        living = self._table.living
        kept = living[belongs(self.columns(living))]
        self._table.keep(kept)
        return kept

    def release(self, slots: Array) -> None:
        """Let go of keys with nothing alive."""
        if self._table is not None and len(slots):
            self._table.release(slots)

    def save(self) -> OperatorState:
        return {"table": None if self._table is None else self._table.save()}

    def load(self, state: OperatorState) -> None:
        if self._table is not None:
            self._table.load(state["table"])


class KeyedOperator(Operator):
    """An operator of one input whose state goes by the slots of its keys."""

    _keys: KeySlots

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is None:
            return True
        capacity = self._keys.capacity
        kept = self._keys.keep(mine)
        if kept is None:
            return False
        self._keep_slots(mine, kept, renumbering(kept, capacity))
        return True

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        """Forget all but these slots, of which the i-th is slot i from now on, as `number_of` says; -1 is none."""
        raise NotImplementedError
