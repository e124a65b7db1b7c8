"""Existence by key between inputs whose ends are known on arrival: parts leave with their ends where these are near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aligned import LEFT, RIGHT, AlignedOperator
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots, renumbered_chains
from squill.engine.buffers import grown
from squill.engine.columns import read_only
from squill.engine.entries import Entries
from squill.engine.kernels.coverage import (
    FOLLOWING,
    LEFT_REST,
    LEFT_ROW,
    OF_END,
    OF_SLOT,
    PRECEDING,
    SHOWN,
    follow_coverage,
)
from squill.engine.operator import NUMBERED, Belongs, OperatorState
from squill.engine.owned import owned
from squill.engine.pair_keys import PairKeys
from squill.engine.time_queue import TimeQueue
from squill.plan.nodes import Exists
from squill.time import INFINITY

__all__ = ["ExistsByIntervals"]

Array = npt.NDArray[Any]
NONE = np.empty(0, np.int64)


class ExistsByIntervals(AlignedOperator):
    """Left rows of a key appear and vanish together, when the first right row begins or the last one ends.

    State: left rows that are alive, and the ends and keys of right rows that are.
    """

    numbers_rows = True

    def __init__(self, node: Exists) -> None:
        super().__init__(node)
        self._negated = node.negated
        self._keys = PairKeys(node)
        self._heads = np.zeros((16, 2), np.int64)
        self._entries = Entries(node.left.schema)
        self._rows = np.zeros((16, LEFT_ROW), np.int64)
        self._rest = np.zeros((16, LEFT_REST), np.int64)
        self._hidden_at = np.full(16, SHOWN, np.int64)
        # What ends later: left entries and slots of right rows, as (end, entry or slot).
        self._left_ends, self._right_ends = TimeQueue(), TimeQueue()
        self._parts = 0
        self._room = 1_024

    def accept(self, batch: Batch, port: int) -> Batch:
        # A right row with a null key matches nothing, so nothing ever depends on it.
        return self._keys.without_null_keys(batch, port) if port == RIGHT else batch

    def has_due(self, bound: int) -> bool:
        return len(self._left_ends) > 0 or len(self._right_ends) > 0

    def run(self, left: Batch | None, right: Batch | None, bound: int) -> None:
        l_sync, l_slot, l_entry = (NONE, NONE, NONE) if left is None else self._enter(left)
        r_sync, r_slot = NONE, NONE
        if right is not None:
            r_sync, r_slot = right.sync, self._keys.slots(right, RIGHT).astype(np.int64)
            _add_ends(self._right_ends, right.other, r_slot)
        last = bound - 1 if bound < INFINITY else INFINITY - 1
        left_over, right_over = self._left_ends.pop_until(last), self._right_ends.pop_until(last)
        gone = NONE if left_over is None else left_over.other
        over_time, over_slot = (NONE, NONE) if right_over is None else (right_over.sync, right_over.other)
        self._heads = grown(self._heads, self._keys.capacity)
        self._hidden_at = grown(self._hidden_at, self._keys.capacity, SHOWN)
        n, begun, n_closed, closed = follow_coverage(
            read_only(l_sync), read_only(l_slot), read_only(l_entry), read_only(r_sync), read_only(r_slot),
            read_only(over_time), read_only(over_slot), read_only(gone), self._negated, self._heads,
            self._rows, self._rest, self._hidden_at, self._parts, self._room,
        )  # fmt: skip
        # Room that is not written to costs nothing, growing copies.
        self._room = max(1_024, 2 * n)
        self._emit_parts(begun[:, :n], closed[:, :n_closed])
        self._let_go(gone, over_slot)

    def _enter(self, left: Batch) -> tuple[Array, Array, Array]:
        entries = self._entries.add(left)
        self._rows = grown(self._rows, len(self._entries.start))
        self._rest = grown(self._rest, len(self._entries.start))
        slots = self._keys.slots(left, LEFT).astype(np.int64)
        self._rest[entries, OF_SLOT] = slots
        self._rows[entries, OF_END] = left.other
        _add_ends(self._left_ends, left.other, entries)
        return left.sync, slots, entries

    def _emit_parts(self, begun: Array, closed: Array) -> None:
        sync, end, entries = begun
        first, self._parts = self._parts, self._parts + len(sync)
        parts = Batch(sync, end, self._entries.columns(entries))
        if self.demand == NUMBERED:
            parts.ids = range(first, self._parts)
            self.emit(parts)
            if closed.shape[1]:
                self.close_rows(closed[0], closed[1])
            return
        _, ended, since, of = closed
        if len(ended):
            parts = Batch.concat([parts, Batch(ended, since, self._entries.columns(of))]).sorted_by_sync()
        self.emit(parts)

    def _let_go(self, gone: Array, over_slot: Array) -> None:
        if len(gone):
            over_slot = np.concatenate([over_slot, self._rest[gone, OF_SLOT]])
            self._entries.free(gone)
        self._keys.release_empty(over_slot, self._heads)

    def save(self) -> OperatorState:
        return {
            **super().save(),
            "keys": self._keys.save(),
            "heads": self._heads,
            "entries": self._entries.save(),
            "rows": self._rows,
            "rest": self._rest,
            "left_ends": self._left_ends.save(),
            "right_ends": self._right_ends.save(),
            "parts": self._parts,
        }

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._keys.load(state["keys"])
        self._heads = owned(state["heads"])
        self._entries.load(state["entries"])
        self._rows, self._rest = owned(state["rows"]), owned(state["rest"])
        self._left_ends.load(state["left_ends"])
        self._right_ends.load(state["right_ends"])
        self._parts = state["parts"]

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        found = self._keep_keys(self._keys, belongs)
        if found is None:
            return False
        kept, slot_number = found
        living = self._entries.living
        entries = living[slot_number[self._rest[living, OF_SLOT]] >= 0]
        rows, rest = self._rows[entries], self._rest[entries]
        number = self._entries.keep(entries)
        # Chains hold entry + 1, and are of one key each.
        rows[:, FOLLOWING] = renumbered_chains(rows[:, FOLLOWING], number)
        rest[:, PRECEDING] = renumbered_chains(rest[:, PRECEDING], number)
        rest[:, OF_SLOT] = slot_number[rest[:, OF_SLOT]]
        self._rows, self._rest = grown(rows, len(self._entries.start)), grown(rest, len(self._entries.start))
        self._heads = at_slots(grown(self._heads, len(slot_number)), kept)
        self._heads[:, LEFT] = renumbered_chains(self._heads[:, LEFT], number)
        self._left_ends.keep_numbers(number)
        self._right_ends.keep_numbers(slot_number)
        return True

    @property
    def state_rows(self) -> int:
        return super().state_rows + self._entries.live + len(self._right_ends)


def _add_ends(queue: TimeQueue, ends: Array, numbers: Array) -> None:
    """Put in what ends, with its number; endless rows never do."""
    if ends.max() == INFINITY:
        finite = ends != INFINITY
        ends, numbers = ends[finite], numbers[finite]
    queue.add(Batch(ends, numbers))
