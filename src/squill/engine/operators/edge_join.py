"""The temporal join of inputs whose ends come later: pairs begin and end by edges."""

from __future__ import annotations

import numpy as np

from squill.engine.aligned import LEFT, RIGHT
from squill.engine.batch import Batch, Int64s
from squill.engine.columns import read_only
from squill.engine.kernels.join import CURSOR, NEXT_LEFT, join_edges
from squill.engine.live_pairs import BothChanges, LivePairsOperator
from squill.engine.operator import NUMBERED

__all__ = ["EdgeJoin"]

CHUNK = 131_072
"""How many edges leave together."""


class EdgeJoin(LivePairsOperator):
    """A pair begins when its second row does and ends when its first row does.

    Ends that come by number need no search for the row that they end, which takes most of the time otherwise.
    """

    demands = NUMBERED
    runs_on_rows = False

    def close_rows(self, ids: Int64s, ends: Int64s, port: int = 0) -> None:
        self._rows[port].close(ids, ends)

    def accept(self, batch: Batch, port: int) -> Batch:
        return self._keys.without_null_keys(batch, port)

    def follow(self, changes: BothChanges) -> None:
        cursor = np.zeros(CURSOR, np.int64)
        given = [read_only(array) for array in changes]
        starts = [rows.start for rows in self._rows]
        while cursor[NEXT_LEFT] < len(changes.time):
            sync, other = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
            left, right = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
            n = join_edges(
                *given, self._heads, self._following[LEFT], self._preceding[LEFT], starts[LEFT],
                self._following[RIGHT], self._preceding[RIGHT], starts[RIGHT], cursor, sync, other, left, right,
            )  # fmt: skip
            self._pairs.emit(self, sync[:n], other[:n], left[:n], right[:n])
