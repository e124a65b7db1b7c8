"""Rows that are due later: put in in any order, taken out in the order in which they take effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch
from squill.engine.operator import Belongs, OperatorState
from squill.time import INFINITY

__all__ = ["TimeQueue"]

Array = npt.NDArray[Any]


class TimeQueue:
    """Sorted runs of rows, merged when they are of like size, so that every row is moved O(log n) times."""

    def __init__(self) -> None:
        self._runs: list[Batch] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, batch: Batch) -> None:
        """Put rows in; they need not be in order."""
        if not len(batch):
            return
        self._runs.append(batch.sorted_by_sync())
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            right, left = self._runs.pop(), self._runs.pop()
            self._runs.append(Batch.concat([left, right]).sorted_by_sync())

    def pop_until(self, t: int) -> Batch | None:
        """Take out the rows with sync ≤ t, in order; None when there are none."""
        due: list[Batch] = []
        rest: list[Batch] = []
        for run in self._runs:
            count = int(np.searchsorted(run.sync, t, side="right"))
            if count:
                due.append(run.slice(0, count))
            if count < len(run):
                rest.append(run.slice(count, len(run)))
        self._runs = rest
        return Batch.concat(due).sorted_by_sync() if due else None

    def count_endless(self) -> int:
        """How many rows have no end."""
        return sum(int((run.other == INFINITY).sum()) for run in self._runs)

    def keep(self, belongs: Belongs) -> None:
        """Throw out what does not belong here."""
        kept = [run.filter(belongs(run.columns)) for run in self._runs]
        self._runs = [run for run in kept if len(run)]

    def keep_numbers(self, number_of: Array) -> None:
        """Throw out what has no new number; of what these rows are, numbers say, which stand where ends do."""
        waiting = self.pop_until(INFINITY)
        if waiting is not None:
            numbers = number_of[waiting.other]
            stays = numbers >= 0
            self.add(Batch(waiting.sync[stays], numbers[stays]))

    def save(self) -> OperatorState:
        return {"runs": list(self._runs)}

    def load(self, state: OperatorState) -> None:
        self._runs = list(state["runs"])
