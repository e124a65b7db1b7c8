"""Exists: the parts of left lifetimes in which something on the right matches, or in which nothing does."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aligned import LEFT, RIGHT
from squill.engine.buffers import grown
from squill.engine.columns import read_only
from squill.engine.kernels.exists import EDGE, PAIR_BEGINS, PAIR_ENDS, follow_counts, follow_presence, list_pairs
from squill.engine.live_pairs import BothChanges
from squill.engine.operator import Operator, OperatorState, register
from squill.engine.operators.exists_intervals import ExistsByIntervals
from squill.engine.owned import owned
from squill.engine.relational_variants import choose_relational
from squill.engine.shown_parts import ShownPartsOperator
from squill.plan.nodes import Exists, TwoInputs

__all__ = ["ExistsByCount", "ExistsByKey", "exists_operator"]

Array = npt.NDArray[Any]


@register(Exists)
def exists_operator(node: Exists) -> Operator:
    """Return the cheapest operator that gives the answer."""
    relational = choose_relational(node)
    if relational is not None:
        return relational
    if node.matching.where is not None:
        return ExistsByCount(node)
    ends_known = node.left.properties.ends_known and node.right.properties.ends_known
    return ExistsByIntervals(node) if ends_known else ExistsByKey(node)


class ExistsByKey(ShownPartsOperator):
    """Equal keys are all that counts, so left rows of a key appear and vanish together; ends may come as edges."""

    def __init__(self, node: Exists) -> None:
        super().__init__(node)
        self._negated = node.negated

    def right_columns(self, node: TwoInputs) -> dict[str, pl.DataType]:
        return {}

    def follow(self, changes: BothChanges) -> None:
        self._ensure_entries()
        n, edges = follow_presence(
            *map(read_only, changes), self._negated, self._heads, self._following[LEFT], self._preceding[LEFT],
            self._shown_since, self._numbers, self._counter, np.zeros(len(self._heads), np.uint8),
        )  # fmt: skip
        self._emit_edges(edges[:, :n])


class ExistsByCount(ShownPartsOperator):
    """A condition looks at both rows, so every left row counts its own matches.

    A pair is tested when it begins and again when its right row ends, which spares keeping it.
    """

    def __init__(self, node: Exists) -> None:
        super().__init__(node)
        self._negated = node.negated
        self._matches = np.zeros(16, np.int64)

    def follow(self, changes: BothChanges) -> None:
        self._ensure_entries()
        self._matches = grown(self._matches, self._rows[LEFT].capacity)
        n, listed = list_pairs(
            *map(read_only, changes), self._heads, self._following[LEFT], self._preceding[LEFT],
            self._following[RIGHT], self._preceding[RIGHT],
        )  # fmt: skip
        time, kind, left, right = (read_only(array) for array in listed[:, :n])
        edges = np.empty((EDGE, 2 * n), np.int64)
        count = follow_counts(
            time, kind, left, self._passes(kind, left, right), self._negated, self._matches, self._shown_since,
            self._numbers, self._counter, edges,
        )  # fmt: skip
        self._emit_edges(edges[:, :count])

    def _passes(self, kind: Array, left: Array, right: Array) -> Array:
        passes = np.zeros(len(kind), np.bool_)
        pairs = np.flatnonzero((kind == PAIR_BEGINS) | (kind == PAIR_ENDS))
        if len(pairs):
            mask, _ = self._pairs.matching(left[pairs], right[pairs])
            passes[pairs] = True if mask is None else mask
        return passes

    def save(self) -> OperatorState:
        return {**super().save(), "matches": self._matches}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._matches = owned(state["matches"])
