"""ClipByStream: an event ends no later than the next matching start on another stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aligned import LEFT
from squill.engine.batch import Batch
from squill.engine.columns import read_only
from squill.engine.kernels.clip import clip_by_starts
from squill.engine.kernels.exists import ENTRY, OTHER
from squill.engine.live_pairs import BothChanges
from squill.engine.live_rows import Changes
from squill.engine.operator import EDGES, STARTS, register
from squill.engine.shown_parts import ShownPartsOperator
from squill.plan.nodes import ClipByStream
from squill.time import INFINITY

__all__ = ["ClipByStreamOperator"]

Array = npt.NDArray[Any]


@register(ClipByStream)
class ClipByStreamOperator(ShownPartsOperator):
    """State: left rows that are alive and not clipped; of the right nothing is kept, its starts pass by."""

    def demands_on(self, port: int) -> str | None:
        return EDGES if port == LEFT else STARTS

    def accept(self, batch: Batch, port: int) -> Batch:
        if port == LEFT:
            return batch
        return self._keys.without_null_keys(batch.filter(batch.other > batch.sync), port)

    def take(self, port: int, batch: Batch | None, bound: int) -> tuple[Changes, Array]:
        if port == LEFT:
            return super().take(port, batch, bound)
        # Left keys are in the table by now: a key that is not there has nothing to clip.
        slots = np.empty(0, np.int32) if batch is None else self._keys.find(batch, port)
        known = slots >= 0
        time = np.empty(0, np.int64) if batch is None else batch.sync[known]
        return Changes(time, np.full(len(time), -1), np.ones(len(time), np.bool_)), slots[known]

    def follow(self, changes: BothChanges) -> Array:
        self._ensure_entries()
        rows = self._rows[LEFT]
        n, edges = clip_by_starts(
            *map(read_only, changes), self._heads, self._following[LEFT], self._preceding[LEFT], self._shown_since,
            self._numbers, self._counter,
        )  # fmt: skip
        edges = edges[:, :n]
        self._emit_edges(edges)
        ended = changes.entry[~changes.is_start]
        clipped = np.setdiff1d(edges[ENTRY, edges[OTHER] != INFINITY], ended)
        slots = self._slot_of[LEFT][clipped]
        rows.forget(clipped)
        return slots
