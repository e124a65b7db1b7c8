"""The temporal join of two inputs whose ends are known on arrival: pairs leave as intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aligned import LEFT, RIGHT, AlignedOperator
from squill.engine.batch import Batch
from squill.engine.buffers import grown
from squill.engine.columns import read_only
from squill.engine.kernels.join import CURSOR, NEXT_LEFT, NEXT_RIGHT, chain_rows, join_intervals
from squill.engine.operator import Belongs, OperatorState
from squill.engine.owned import owned
from squill.engine.pair_columns import PairColumns
from squill.engine.pair_keys import PairKeys
from squill.engine.row_store import RowStore
from squill.plan.nodes import Join
from squill.time import INFINITY

__all__ = ["IntervalJoin"]

Array = npt.NDArray[Any]
CHUNK = 131_072
"""How many pairs leave together."""
SLACK = 4_096
"""How many dead rows are put up with before they are thrown out."""


class KeptRows:
    """The rows of one side that the other side's rows may still meet, by place in a store."""

    def __init__(self, types: dict[str, pl.DataType]) -> None:
        self.store = RowStore(types)
        self.end = np.empty(0, np.int64)
        self.slot = np.empty(0, np.int32)
        self.following = np.empty(0, np.int64)
        self._after_sweep = 0

    def add(self, batch: Batch, slots: Array) -> int:
        """Put rows at the end; returns the place of the first."""
        first = self.store.append(batch.columns, len(batch))
        size = first + len(batch)
        self.end, self.slot = grown(self.end, size, None), grown(self.slot, size, None)
        self.following = grown(self.following, size, None)
        self.end[first:size] = batch.other
        self.slot[first:size] = slots
        return first

    @property
    def is_wasteful(self) -> bool:
        return len(self.store) > 2 * self._after_sweep + SLACK

    def sweep(self, t: int) -> Array:
        """Throw out what ended by t; returns the slots of these rows. The chains are to be made anew."""
        size = len(self.store)
        alive = self.end[:size] > t
        dead_slots = self.slot[:size][~alive]
        places = np.flatnonzero(alive)
        if len(places) < size:
            self.store.keep(places)
            self.end, self.slot = self.end[places], self.slot[places]
            self.following = np.empty(len(places), np.int64)
        self._after_sweep = len(places)
        return dead_slots

    def keep(self, number_of: Array) -> None:
        """Throw out the rows of slots without a number, and give the others theirs. The chains are to be made anew."""
        size = len(self.store)
        numbers = number_of[self.slot[:size]]
        places = np.flatnonzero(numbers >= 0)
        self.store.keep(places)
        self.end, self.slot = self.end[places], numbers[places].astype(np.int32)
        self.following = np.empty(len(places), np.int64)
        self._after_sweep = len(places)

    def save(self) -> OperatorState:
        size = len(self.store)
        return {
            "store": self.store.save(),
            "end": self.end[:size],
            "slot": self.slot[:size],
            "following": self.following[:size],
            "after_sweep": self._after_sweep,
        }

    def load(self, state: OperatorState) -> None:
        self.store.load(state["store"])
        self.end, self.slot, self.following = (owned(state[name]) for name in ("end", "slot", "following"))
        self._after_sweep = state["after_sweep"]


class IntervalJoin(AlignedOperator):
    """Each row meets the live rows of its key on the other side, then waits for later ones itself.

    State: rows alive on both sides, and at most as many dead ones, which leave when they are in the majority.
    A side whose partner has completed keeps nothing more.
    """

    whole_instants = False

    def __init__(self, node: Join) -> None:
        super().__init__(node)
        self._keys = PairKeys(node)
        self._heads = np.zeros((16, 2), np.int64)
        self._sides = (KeptRows(dict(node.left.schema)), KeptRows(PairColumns.right_types(node)))
        self._pairs = PairColumns(node, self._sides[LEFT].store.gather, self._sides[RIGHT].store.gather)
        self._empty = (Batch.empty(dict(node.left.schema)), Batch.empty(dict(node.right.schema)))

    def accept(self, batch: Batch, port: int) -> Batch:
        return self._keys.without_null_keys(batch, port)

    def run(self, left: Batch | None, right: Batch | None, bound: int) -> None:
        rows = (self._empty[LEFT] if left is None else left, self._empty[RIGHT] if right is None else right)
        slots = [self._keys.slots(batch, port) for port, batch in enumerate(rows)]
        self._heads = grown(self._heads, self._keys.capacity)
        first = [side.add(batch, slots[port]) for port, (side, batch) in enumerate(zip(self._sides, rows, strict=True))]
        kept = [len(rows[1 - port]) > 0 or self._expects(1 - port) for port in (LEFT, RIGHT)]
        self._join(rows, slots, first, kept)
        if self._sides[LEFT].is_wasteful or self._sides[RIGHT].is_wasteful:
            self._sweep(bound)

    def _join(self, rows: tuple[Batch, Batch], slots: list[Array], first: list[int], kept: list[bool]) -> None:
        (left, right), (kept_left, kept_right) = rows, self._sides
        cursor = np.zeros(CURSOR, np.int64)
        while cursor[NEXT_LEFT] < len(left) or cursor[NEXT_RIGHT] < len(right):
            sync, end = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
            out_left, out_right = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
            n = join_intervals(
                read_only(left.sync), read_only(left.other), read_only(slots[LEFT]), first[LEFT], kept[LEFT],
                read_only(right.sync), read_only(right.other), read_only(slots[RIGHT]), first[RIGHT], kept[RIGHT],
                self._heads,
                kept_left.following, kept_left.end, kept_right.following, kept_right.end,
                cursor, sync, end, out_left, out_right,
            )  # fmt: skip
            self._pairs.emit(self, sync[:n], end[:n], out_left[:n], out_right[:n])

    def _expects(self, port: int) -> bool:
        """True when more rows of this side may come."""
        return self._clocks[port] < INFINITY or bool(self._waiting[port])

    def _sweep(self, t: int) -> None:
        emptied = []
        for port, side in enumerate(self._sides):
            emptied.append(side.sweep(t if self._expects(1 - port) else INFINITY))
            chain_rows(read_only(side.slot[: len(side.store)]), port, self._heads, side.following)
        self._keys.release_empty(np.concatenate(emptied), self._heads)

    def save(self) -> OperatorState:
        sides = [side.save() for side in self._sides]
        return {**super().save(), "keys": self._keys.save(), "heads": self._heads, "sides": sides}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._keys.load(state["keys"])
        self._heads = owned(state["heads"])
        for side, saved in zip(self._sides, state["sides"], strict=True):
            side.load(saved)

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        found = self._keep_keys(self._keys, belongs)
        if found is None:
            return False
        kept, number_of = found
        self._heads = np.zeros((max(16, len(kept)), 2), np.int64)
        for port, side in enumerate(self._sides):
            side.keep(number_of)
            chain_rows(read_only(side.slot), port, self._heads, side.following)
        return True

    @property
    def state_rows(self) -> int:
        return super().state_rows + sum(len(side.store) for side in self._sides)
