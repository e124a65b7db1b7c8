"""The base of operators that follow what is alive on both inputs, change by change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aligned import LEFT, RIGHT, AlignedOperator
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots
from squill.engine.buffers import grown
from squill.engine.live_rows import Changes, LiveRows
from squill.engine.operator import Belongs, OperatorState
from squill.engine.owned import owned
from squill.engine.pair_columns import PairColumns
from squill.engine.pair_keys import PairKeys
from squill.plan.nodes import TwoInputs

__all__ = ["BothChanges", "LivePairsOperator"]

Array = npt.NDArray[Any]


class BothChanges(NamedTuple):
    """Changes of both sides in time order, in an instant ends first; `slot` is the slot of their key."""

    time: Array
    side: Array
    entry: Array
    is_start: Array
    slot: Array


def merged(both: list[tuple[Changes, Array]]) -> BothChanges:
    """Return the changes of both sides in one order."""
    time = np.concatenate([changes.time for changes, _ in both])
    entry = np.concatenate([changes.entry for changes, _ in both])
    is_start = np.concatenate([changes.is_start for changes, _ in both])
    slot = np.concatenate([slots for _, slots in both])
    side = np.repeat(np.array([LEFT, RIGHT], np.int8), [len(slots) for _, slots in both])
    # Each side comes as sorted runs, which a stable sort by time alone merges; ends are put before starts first.
    ends_first = np.concatenate([np.flatnonzero(~is_start), np.flatnonzero(is_start)])
    order = ends_first[np.argsort(time[ends_first], kind="stable")]
    return BothChanges(time[order], side[order], entry[order], is_start[order], slot[order])


class LivePairsOperator(AlignedOperator):
    """Live rows of both sides in chains by key slot, for a kernel that takes their changes in order.

    A subclass gives `follow`, which does so; entries and keys that are over are let go afterwards.
    """

    def __init__(self, node: TwoInputs) -> None:
        super().__init__(node)
        self._keys = PairKeys(node)
        self._rows = (
            LiveRows(node.left.schema, ends_known=node.left.properties.ends_known),
            LiveRows(self.right_columns(node), ends_known=node.right.properties.ends_known),
        )
        self._slot_of = [np.zeros(16, np.int32), np.zeros(16, np.int32)]
        self._following = [np.zeros(16, np.int64), np.zeros(16, np.int64)]
        self._preceding = [np.zeros(16, np.int64), np.zeros(16, np.int64)]
        self._heads = np.zeros((16, 2), np.int64)
        self._pairs = PairColumns(node, self._rows[LEFT].columns, self._rows[RIGHT].columns)

    def right_columns(self, node: TwoInputs) -> dict[str, pl.DataType]:
        """Return the right columns that it must keep."""
        return PairColumns.right_types(node)

    def follow(self, changes: BothChanges) -> Array | None:
        """Take the changes of whole instants; return slots besides those of ended rows that may be empty now."""
        raise NotImplementedError

    def accept(self, batch: Batch, port: int) -> Batch:
        # A right row with a null key matches nothing, so nothing ever depends on it.
        return self._keys.without_null_keys(batch, port) if port == RIGHT else batch

    def has_due(self, bound: int) -> bool:
        return any(rows.has_due for rows in self._rows)

    def run(self, left: Batch | None, right: Batch | None, bound: int) -> None:
        changes = merged([self.take(port, batch, bound) for port, batch in enumerate((left, right))])
        if not len(changes.time):
            return
        self._heads = grown(self._heads, self._keys.capacity)
        also = self.follow(changes)
        self._let_go(changes, also)

    def take(self, port: int, batch: Batch | None, bound: int) -> tuple[Changes, Array]:
        """Return what changes on one side before `bound`, and the key slot of each change."""
        rows = self._rows[port]
        changes, entries = rows.take(batch, bound)
        for arrays in (self._slot_of, self._following, self._preceding):
            arrays[port] = grown(arrays[port], rows.capacity)
        if batch is not None:
            is_start = batch.other > batch.sync
            starts = batch.filter(is_start)
            if len(starts):
                self._slot_of[port][entries[is_start]] = self._keys.slots(starts, port)
        return changes, self._slot_of[port][changes.entry]

    def _let_go(self, changes: BothChanges, also: Array | None) -> None:
        ended = ~changes.is_start
        for port in (LEFT, RIGHT):
            self._rows[port].free(changes.entry[ended & (changes.side == port)])
        slots = changes.slot[ended]
        self._keys.release_empty(slots if also is None else np.concatenate([slots, also]), self._heads)

    def save(self) -> OperatorState:
        return {
            **super().save(),
            "keys": self._keys.save(),
            "rows": [rows.save() for rows in self._rows],
            "heads": self._heads,
            "slot_of": list(self._slot_of),
            "following": list(self._following),
            "preceding": list(self._preceding),
        }

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._keys.load(state["keys"])
        for rows, saved in zip(self._rows, state["rows"], strict=True):
            rows.load(saved)
        self._heads = owned(state["heads"])
        self._slot_of = [owned(array) for array in state["slot_of"]]
        self._following = [owned(array) for array in state["following"]]
        self._preceding = [owned(array) for array in state["preceding"]]

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        found = self._keep_keys(self._keys, belongs)
        if found is None:
            return False
        kept, number_of = found
        self._heads = at_slots(grown(self._heads, len(number_of)), kept)
        for port, rows in enumerate(self._rows):
            for arrays in (self._slot_of, self._following, self._preceding):
                arrays[port] = grown(arrays[port], rows.capacity)
            numbers = number_of[self._slot_of[port]]
            rows.keep(numbers >= 0)
            # Of entries that are not in use it says nothing.
            self._slot_of[port] = np.maximum(numbers, 0).astype(np.int32)
        return True

    @property
    def state_rows(self) -> int:
        return super().state_rows + sum(rows.live for rows in self._rows)
