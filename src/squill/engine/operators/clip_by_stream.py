"""ClipByStream: an event ends no later than the next matching start on another stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aligned import LEFT
from squill.engine.batch import Batch
from squill.engine.buffers import grown
from squill.engine.columns import read_only
from squill.engine.kernels.clip import clip_by_starts
from squill.engine.live_pairs import BothChanges, LivePairsOperator
from squill.engine.live_rows import Changes
from squill.engine.operator import EDGES, STARTS, OperatorState, register
from squill.plan.nodes import ClipByStream
from squill.time import INFINITY

__all__ = ["ClipByStreamOperator"]

Array = npt.NDArray[Any]


@register(ClipByStream)
class ClipByStreamOperator(LivePairsOperator):
    """State: left rows that are alive and not clipped; of the right nothing is kept, its starts pass by."""

    def __init__(self, node: ClipByStream) -> None:
        super().__init__(node)
        self._is_open = np.zeros(16, np.uint8)

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
        rows = self._rows[LEFT]
        self._is_open = grown(self._is_open, rows.capacity)
        n, sync, other, entries = clip_by_starts(
            *map(read_only, changes), self._heads, self._following[LEFT], self._preceding[LEFT], rows.start,
            self._is_open,
        )  # fmt: skip
        sync, other, entries = sync[:n], other[:n], entries[:n]
        self.emit(Batch(sync, other, rows.columns(entries)))
        ended = changes.entry[~changes.is_start]
        clipped = np.setdiff1d(entries[other != INFINITY], ended)
        slots = self._slot_of[LEFT][clipped]
        rows.forget(clipped)
        return slots

    def save(self) -> OperatorState:
        return {**super().save(), "is_open": self._is_open.copy()}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._is_open = state["is_open"].copy()
