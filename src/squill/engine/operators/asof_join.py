"""AsofJoin: each left row with the latest right row of its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aligned import LEFT, RIGHT, AlignedOperator
from squill.engine.batch import Batch, Int64s
from squill.engine.belongs import at_slots
from squill.engine.buffers import grown
from squill.engine.columns import read_only
from squill.engine.expressions import Evaluator
from squill.engine.kernels.asof import LATEST, NONE, PLACE, START, mark_ties, match_latest
from squill.engine.open_events import OpenEvents
from squill.engine.operator import EDGES, STARTS, Belongs, OperatorState, register
from squill.engine.owned import owned
from squill.engine.pair_keys import PairKeys
from squill.engine.row_order import sort_permutation
from squill.engine.row_store import RowStore
from squill.plan.nodes import AsofJoin
from squill.time import INFINITY

__all__ = ["AsofJoinOperator"]

Array = npt.NDArray[Any]
NO_TIMES, NO_SLOTS = np.empty(0, np.int64), np.empty(0, np.int32)
FEW_KEYS = 4_096
"""Keys that are never worth looking through for rows that are too old."""


@register(AsofJoin)
class AsofJoinOperator(AlignedOperator):
    """State: the latest right row of each key; and, where left rows end by edges, the matches of those open.

    An end edge carries the same right columns as its start edge, whatever has come on the right in between.
    """

    def __init__(self, node: AsofJoin) -> None:
        super().__init__(node)
        self._is_inner = node.how == "inner"
        self._tolerance = NONE if node.tolerance is None else node.tolerance
        self._order = Evaluator(node.order_by, node.right.time, "asof_join order_by")
        self._order_uses_end = any(item.uses_end for item in node.order_by)
        self._right_names = node.right.schema.names
        self._sources = dict(node.matching.right_as)
        self._keys = PairKeys(node)
        self._store = RowStore({name: node.right.schema[source] for name, source in node.matching.right_as})
        self._latest = np.zeros((16, LATEST), np.int64)
        self._last_row = np.zeros(16, np.int64)
        self._kept_keys = 0
        self._left_has_ends = not node.left.properties.ends_known
        self._right_has_ends = not node.right.properties.ends_known
        # Of the rows that are open their keys, which say whose they are.
        self._open = OpenEvents({name: node.left.schema[name] for name in node.matching.left_keys})
        self._match_of = np.full(16, NONE, np.int64)

    def demands_on(self, port: int) -> str:
        if port == RIGHT:
            return EDGES if self._order_uses_end else STARTS
        return STARTS if self.demand == STARTS else EDGES

    def accept(self, batch: Batch, port: int) -> Batch:
        if (self._right_has_ends and port == RIGHT) or (self._left_has_ends and port == LEFT and self.demand == STARTS):
            batch = batch.filter(batch.other > batch.sync)
        return self._keys.without_null_keys(batch, RIGHT) if port == RIGHT else batch

    def run(self, left: Batch | None, right: Batch | None, bound: int) -> None:
        times, slots, first = self._add(right)
        # A key that only the left has is not put into the table: nothing would ever take it out.
        asked, keys = (NO_TIMES, NO_SLOTS) if left is None else (left.sync, self._keys.find(left, LEFT))
        match = np.empty(len(asked), np.int64)
        # All read-only, so that the kernel is compiled once.
        match_latest(
            read_only(times), read_only(slots), first, read_only(asked), read_only(keys), self._tolerance,
            self._latest, match,
        )  # fmt: skip
        if left is not None:
            if self._left_has_ends and self.demand != STARTS:
                self._follow_edges(left, match)
            self._emit_matched(left, match)
        self._forget(bound)

    def _add(self, right: Batch | None) -> tuple[Int64s, Array, int]:
        """Put the right rows that can be the latest into the store; return their times, slots and first place."""
        if right is None:
            return NO_TIMES, NO_SLOTS, 0
        slots = self._keys.slots(right, RIGHT)
        self._latest = grown(self._latest, self._keys.capacity)
        self._last_row = grown(self._last_row, self._keys.capacity)
        group = np.empty(len(right), np.int64)
        if mark_ties(read_only(right.sync), read_only(slots), self._last_row, group):
            rows = self._last_of_ties(right, group)
            right, slots = right.take(rows), slots[rows]
        columns = {name: right.columns[source] for name, source in self._sources.items()}
        return right.sync, slots, self._store.append(columns, len(right))

    def _last_of_ties(self, right: Batch, group: Int64s) -> Array:
        """Return the rows that stay when of rows with equal key and start only the last by the order rule does."""
        tied = np.flatnonzero(group != NONE)
        rows, groups = right.take(tied), group[tied]
        ordering = [*self._order(rows).values(), *(rows.columns[name] for name in self._right_names)]
        order = sort_permutation(groups, ordering)
        if order is not None:
            tied, groups = tied[order], groups[order]
        is_last = np.append(groups[1:] != groups[:-1], True)
        stays = group == NONE
        stays[tied[is_last]] = True
        return np.flatnonzero(stays)

    def _follow_edges(self, left: Batch, match: Int64s) -> None:
        """Note the matches of start edges and give end edges those of their start edges."""
        is_end = left.other < left.sync
        edges = np.flatnonzero(is_end | (left.other == INFINITY))
        if not len(edges):
            return
        entries, is_end = self._open.take(left.take(edges)), is_end[edges]
        self._match_of = grown(self._match_of, len(self._open.entries.start), NONE)
        self._match_of[entries[~is_end]] = match[edges[~is_end]]
        match[edges[is_end]] = self._match_of[entries[is_end]]
        self._open.free(entries[is_end])

    def _emit_matched(self, left: Batch, match: Int64s) -> None:
        if self._is_inner:
            rows = np.flatnonzero(match != NONE)
            if len(rows) < len(left):
                left, match = left.take(rows), match[rows]
        self.emit(left.with_columns({**left.columns, **self._store.gather_or_null(match)}))

    def _forget(self, bound: int) -> None:
        """Let go of rows that have been replaced and, with a tolerance, of keys whose row is too old."""
        live = self._keys.live
        if self._tolerance != NONE and live > 2 * self._kept_keys + FEW_KEYS:
            has_row = self._latest[:, PLACE] > 0
            slots = np.flatnonzero(has_row & (self._latest[:, START] < bound - self._tolerance))
            self._latest[slots] = 0
            self._keys.release(slots)
            self._kept_keys = live = self._keys.live
        if self._store.is_wasteful(live + self._open.entries.live):
            self._compact()

    def _compact(self) -> None:
        slots = np.flatnonzero(self._latest[:, PLACE])
        entries = self._open.open_entries
        entries = entries[self._match_of[entries] != NONE]
        held = np.concatenate([self._latest[slots, PLACE] - 1, self._match_of[entries]])
        places, moved = np.unique(held, return_inverse=True)
        self._store.keep(places)
        self._latest[slots, PLACE] = moved[: len(slots)] + 1
        self._match_of[entries] = moved[len(slots) :]

    def save(self) -> OperatorState:
        return {
            **super().save(),
            "keys": self._keys.save(),
            "store": self._store.save(),
            "latest": self._latest,
            "kept_keys": self._kept_keys,
            "open": self._open.save(),
            "match_of": self._match_of,
        }

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._keys.load(state["keys"])
        self._store.load(state["store"])
        self._latest = owned(state["latest"])
        self._last_row = np.zeros(len(self._latest), np.int64)
        self._kept_keys = state["kept_keys"]
        self._open.load(state["open"])
        self._match_of = owned(state["match_of"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        found = self._keep_keys(self._keys, belongs)
        if found is None:
            return False
        kept, number_of = found
        self._latest = at_slots(grown(self._latest, len(number_of)), kept)
        self._last_row = np.zeros(len(self._latest), np.int64)
        self._kept_keys = self._keys.live
        mine = belongs[LEFT]
        assert mine is not None
        self._open.keep(mine)
        self._compact()
        return True

    @property
    def state_rows(self) -> int:
        return super().state_rows + self._keys.live + self._open.entries.live
