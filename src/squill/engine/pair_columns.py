"""The columns of pairs: gathered from what both sides keep, and tested by the join's condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.columns import valid_of, values_of
from squill.engine.expressions import Evaluator
from squill.plan.nodes import TwoInputs

__all__ = ["PairColumns"]

Array = npt.NDArray[Any]
Gather = Callable[[Array], dict[str, pl.Series]]


class PairColumns:
    """Pairs are numbers of rows on both sides until somebody needs their columns.

    `left` and `right` return the kept rows of given numbers under their inputs' own column names.
    """

    def __init__(self, node: TwoInputs, left: Gather, right: Gather) -> None:
        self._left, self._right = left, right
        self._right_as = node.matching.right_as
        where = node.matching.where
        self._where = None if where is None else Evaluator([where], None, f"{node.name} where")

    @staticmethod
    def right_types(node: TwoInputs) -> dict[str, pl.DataType]:
        """Return the right input's columns that pairs show."""
        return {source: node.right.schema[source] for _, source in node.matching.right_as}

    def columns(self, left: Array, right: Array) -> dict[str, pl.Series]:
        columns = self._left(left)
        kept = self._right(right)
        for name, source in self._right_as:
            columns[name] = kept[source] if name == source else kept[source].alias(name)
        return columns

    def matching(self, left: Array, right: Array) -> tuple[npt.NDArray[np.bool_] | None, dict[str, pl.Series]]:
        """Return which pairs pass the condition (None: all) and the columns of all of them."""
        columns = self.columns(left, right)
        if self._where is None:
            return None, columns
        (passes,) = self._where(Batch(left, right, columns)).values()
        mask = values_of(passes).view(np.bool_)
        return (mask & valid_of(passes).view(np.bool_) if passes.null_count() else mask), columns

    @property
    def has_condition(self) -> bool:
        return self._where is not None

    def emit(self, operator: Any, sync: Array, other: Array, left: Array, right: Array) -> None:
        """Hand the pairs that pass to the operator's consumers."""
        if len(sync):
            mask, columns = self.matching(left, right)
            pairs = Batch(sync, other, columns)
            operator.emit(pairs if mask is None else pairs.filter(mask))
