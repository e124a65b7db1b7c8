"""The base of operators with two inputs that advance together: the input that is ahead waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch, numbers_of
from squill.engine.belongs import renumbering
from squill.engine.operator import Belongs, Operator, OperatorState
from squill.engine.pair_keys import PairKeys
from squill.plan.nodes import TwoInputs
from squill.time import MINUS_INFINITY

__all__ = ["LEFT", "RIGHT", "AlignedOperator"]

LEFT, RIGHT = 0, 1
Array = npt.NDArray[Any]


class AlignedOperator(Operator):
    """Rows go to `run` once both inputs have come to them, so never more wait than one input is ahead.

    A subclass gives `run`, or `run_batches` where rows need not be put together; it may drop rows in `accept`, before
    they wait.
    """

    whole_instants: ClassVar[bool] = True
    """True when `run` needs all rows of an instant together: they leave once both clocks are past it."""
    runs_on_rows: ClassVar[bool] = True
    """False when rows may go only as far as clocks say, because ends that are told by number follow them."""

    def __init__(self, node: TwoInputs) -> None:
        super().__init__(node)
        self._clocks = [MINUS_INFINITY, MINUS_INFINITY]
        """What each input has come to, by its rows or by its word."""
        self._promised = [MINUS_INFINITY, MINUS_INFINITY]
        self._waiting: tuple[list[Batch], list[Batch]] = ([], [])
        self._reached = MINUS_INFINITY

    def accept(self, batch: Batch, port: int) -> Batch:
        """Return the rows that are worth keeping."""
        return batch

    def run(self, left: Batch | None, right: Batch | None, bound: int) -> None:
        """Take rows of both sides, in order, that are due; `bound` is what both clocks have reached."""
        raise NotImplementedError

    def run_batches(self, left: Sequence[Batch], right: Sequence[Batch], bound: int) -> None:
        """Take the rows that are due as they came, on either side perhaps none."""
        self.run(_together(left) if left else None, _together(right) if right else None, bound)

    def push(self, batch: Batch, port: int = 0) -> None:
        self._clocks[port] = max(self._clocks[port], batch.last_sync)
        batch = self.accept(batch, port)
        if len(batch):
            self._waiting[port].append(batch)
        # Time follows rows as a rule, and says which instants are over: one run then does the work of two.
        if not self.whole_instants or (self.runs_on_rows and self._rows_waiting > DEFAULT_BATCH_ROWS):
            self._run_due(min(self._clocks))

    def advance(self, t: int, port: int = 0) -> None:
        self._clocks[port] = max(self._clocks[port], t)
        self._promised[port] = max(self._promised[port], t)
        self._run_due(min(self._promised))
        self.emit_clock(min(self._promised))

    def _run_due(self, bound: int) -> None:
        if bound < self._reached or (self.whole_instants and bound == self._reached):
            return  # an instant that is not over gives nothing
        self._reached = bound
        left, right = self._due(LEFT, bound), self._due(RIGHT, bound)
        if left or right or self.has_due(bound):
            self.run_batches(left, right, bound)

    def has_due(self, bound: int) -> bool:
        """True when something is to be done by `bound` though no row is due."""
        return False

    def _due(self, port: int, bound: int) -> list[Batch]:
        waiting = self._waiting[port]
        last = bound - 1 if self.whole_instants else bound
        due: list[Batch] = []
        while waiting:
            count = waiting[0].rows_until(last)
            if count < len(waiting[0]):
                if count:
                    due.append(waiting[0].slice(0, count))
                    waiting[0] = waiting[0].slice(count, len(waiting[0]))
                break
            due.append(waiting.pop(0))
        return due

    def save(self) -> OperatorState:
        waiting = [list(rows) for rows in self._waiting]
        return {
            "clock": self.clock,
            "clocks": list(self._clocks),
            "promised": list(self._promised),
            "waiting": waiting,
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._clocks = list(state["clocks"])
        self._promised = list(state["promised"])
        self._reached = MINUS_INFINITY
        self._waiting = (list(state["waiting"][LEFT]), list(state["waiting"][RIGHT]))

    def _keep_keys(self, keys: PairKeys, belongs: Sequence[Belongs | None]) -> tuple[Array, Array] | None:
        """Forget keys and waiting rows of other shards; return the slots that stay, and the new number of each slot."""
        capacity = keys.capacity
        kept = keys.keep(belongs)
        if kept is None:
            return None
        self._keep_waiting(belongs)
        return kept, renumbering(kept, capacity)

    def _keep_waiting(self, belongs: Sequence[Belongs | None]) -> None:
        """Forget the rows that wait and belong to other shards."""
        for waiting, mine in zip(self._waiting, belongs, strict=True):
            if mine is not None:
                waiting[:] = [rows for batch in waiting if len(rows := batch.filter(mine(batch.columns)))]

    @property
    def _rows_waiting(self) -> int:
        return sum(len(batch) for rows in self._waiting for batch in rows)

    @property
    def state_rows(self) -> int:
        return self._rows_waiting


def _together(batches: Sequence[Batch]) -> Batch:
    """Return the rows with their numbers, where they have some."""
    rows = Batch.concat(batches)
    if len(batches) > 1 and all(batch.ids is not None for batch in batches):
        rows.ids = np.concatenate([numbers_of(batch) for batch in batches])
    return rows
