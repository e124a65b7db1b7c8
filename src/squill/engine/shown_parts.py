"""The base of operators that show parts of left lifetimes, as the right input decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aligned import LEFT
from squill.engine.batch import Batch
from squill.engine.buffers import grown
from squill.engine.live_pairs import LivePairsOperator
from squill.engine.operator import NUMBERED, OperatorState
from squill.engine.owned import owned
from squill.plan.nodes import TwoInputs
from squill.time import INFINITY

__all__ = ["ShownPartsOperator"]

Array = npt.NDArray[Any]


class ShownPartsOperator(LivePairsOperator):
    """Left rows: since when each is shown, and the number of the part that it shows."""

    numbers_rows = True

    def __init__(self, node: TwoInputs) -> None:
        super().__init__(node)
        self._shown_since = np.zeros(16, np.int64)
        self._numbers = np.zeros(16, np.int64)
        self._counter = np.zeros(1, np.int64)

    def _ensure_entries(self) -> None:
        self._shown_since = grown(self._shown_since, self._rows[LEFT].capacity)
        self._numbers = grown(self._numbers, self._rows[LEFT].capacity)

    def _emit_edges(self, edges: Array) -> None:
        """Tell the edges that a kernel wrote in the way the consumer wants."""
        sync, other, entries, numbers = edges
        if self.demand != NUMBERED:
            self.emit(Batch(sync, other, self._rows[LEFT].columns(entries)))
            return
        begun, ended = np.flatnonzero(other == INFINITY), np.flatnonzero(other != INFINITY)
        columns = self._rows[LEFT].columns(entries[begun])
        self.emit(Batch(sync[begun], INFINITY, columns, numbers[begun]))
        if len(ended):
            self.close_rows(numbers[ended], sync[ended])

    def save(self) -> OperatorState:
        return {
            **super().save(),
            "shown_since": self._shown_since,
            "numbers": self._numbers,
            "counter": self._counter,
        }

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._shown_since = owned(state["shown_since"])
        self._numbers = owned(state["numbers"])
        self._counter = owned(state["counter"])
