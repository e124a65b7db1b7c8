"""Whole instants: rows are held until no other row of their instant can come, then put into their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from squill.engine.batch import Batch
from squill.engine.expressions import Evaluator
from squill.engine.operator import Belongs, OperatorState
from squill.engine.row_order import sort_permutation
from squill.plan.expressions import Expression
from squill.time import TimeType

__all__ = ["InstantBuffer", "in_canonical_order", "in_order"]


def in_canonical_order(batch: Batch) -> Batch:
    """Return the rows by time and, inside an instant, by payload: nulls first, NaN last."""
    order = sort_permutation(batch.sync, list(batch.columns.values())) if batch.columns else None
    return batch if order is None else batch.take(order)


def in_order(batch: Batch, order_by: Sequence[Expression], time: TimeType | None, operator: str) -> Batch:
    """Return the rows by time and, inside an instant, by `order_by`, then by payload."""
    if not order_by:
        return in_canonical_order(batch)
    if len(batch) < 2 or bool((batch.sync[1:] > batch.sync[:-1]).all()):
        return batch
    # Numbered, so that an expression may have the name of a column that it changes.
    named = [item.renamed(str(number)) for number, item in enumerate(order_by)]
    given = Evaluator(named, time, operator)(batch).values()
    order = sort_permutation(batch.sync, [*given, *batch.columns.values()])
    return batch if order is None else batch.take(order)


class InstantBuffer:
    """Holds the rows of the last instant."""

    def __init__(self) -> None:
        self._held: list[Batch] = []

    def __len__(self) -> int:
        return sum(map(len, self._held))

    def push(self, batch: Batch) -> Batch | None:
        """Take rows; return those of instants that are over."""
        last = batch.sync[-1]
        first_open = int(np.searchsorted(batch.sync, last))
        over = list(self._held) if self._held and self._held[0].sync[0] < last else []
        if over:
            self._held = []
        if first_open:
            over.append(batch.slice(0, first_open))
        self._held.append(batch.slice(first_open, len(batch)))
        return Batch.concat(over) if over else None

    def advance(self, t: int) -> Batch | None:
        """Return the held rows if their instant is before t."""
        if not self._held or self._held[0].sync[0] >= t:
            return None
        over, self._held = self._held, []
        return Batch.concat(over)

    def keep(self, belongs: Belongs) -> None:
        """Throw out what does not belong here."""
        self._held = [rows for batch in self._held if len(rows := batch.filter(belongs(batch.columns)))]

    def save(self) -> OperatorState:
        return {"held": list(self._held)}

    def load(self, state: OperatorState) -> None:
        self._held = list(state["held"])
