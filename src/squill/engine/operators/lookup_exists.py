"""Exists with relational rows on the right: a filter of the left rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import polars as pl

from squill.engine.aligned import RIGHT
from squill.engine.batch import Batch
from squill.engine.columns import Array, taken
from squill.engine.lookup import LookupOperator, shown_columns
from squill.engine.pair_columns import PairColumns
from squill.plan.nodes import Exists

__all__ = ["LookupExists"]


class LookupExists(LookupOperator):
    """The right rows are alive always, so a left row passes with its whole lifetime or not at all."""

    node: Exists

    def __init__(self, node: Exists) -> None:
        super().__init__(node, RIGHT)
        self._negated = node.negated
        self._left: dict[str, pl.Series] = {}
        has_condition = node.matching.where is not None
        self._pairs = PairColumns(node, self._left_rows, self._table.columns) if has_condition else None

    def _again(self) -> Self:
        return type(self)(self.node)

    def _columns_kept(self) -> Sequence[str]:
        return shown_columns(self.node, RIGHT) if self.node.matching.where is not None else ()

    def _left_rows(self, rows: Array) -> dict[str, pl.Series]:
        return taken(self._left, rows)

    def look_up(self, batch: Batch) -> None:
        slots = self._table.find(batch)
        passes = slots >= 0 if self._pairs is None else self._pass(batch, slots, self._pairs)
        self.emit(batch.filter(~passes if self._negated else passes))

    def _pass(self, batch: Batch, slots: Array, pairs: PairColumns) -> Array:
        """Return which rows have a match that the condition lets pass."""
        passes = np.zeros(len(batch), np.bool_)
        self._left = batch.columns
        for rows, places in self._table.matches(slots):
            self.checkpoint()
            mask, _ = pairs.matching(rows, places)
            passes[rows if mask is None else rows[mask]] = True
        self._left = {}
        return passes
