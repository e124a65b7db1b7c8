"""A lookup table for inputs that both come in the order of their key: a merge instead of a hash table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aligned import LEFT
from squill.engine.batch import Batch
from squill.engine.columns import as_int64, read_only, series_from
from squill.engine.kernels.lookup import find_sorted, group_sorted
from squill.engine.lookup_table import LookupTable
from squill.engine.operator import Belongs, OperatorState
from squill.plan.node import Node
from squill.plan.nodes import Select, Source, TwoInputs, Where

__all__ = ["SortedTable", "can_merge"]

Array = npt.NDArray[Any]


class SortedTable(LookupTable):
    """Keys are read once, from both sides together; a false promise that was trusted misses matches."""

    def __init__(self, node: TwoInputs, port: int, columns: Sequence[str]) -> None:
        super().__init__(node, port, columns)
        (left,), (right,) = node.matching.left_on, node.matching.right_on
        self._key, self._asked = (left, right) if port == LEFT else (right, left)
        self._dtype = node.inputs[port].schema[self._key]
        self._distinct = np.empty(0, np.int64)
        self._position = 0

    def _codes_of(self, batch: Batch) -> Array:
        return as_int64(batch.columns[self._key])[0]

    def _key_columns(self, codes: Array) -> dict[str, pl.Series]:
        return {self._key: series_from(self._key, codes, None, self._dtype)}

    def _arrange(self, codes: Array) -> None:
        distinct, starts = np.empty(len(codes), np.int64), np.empty(len(codes) + 1, np.int64)
        count = group_sorted(read_only(codes), distinct, starts)
        self._distinct, self._starts = distinct[:count], starts[: count + 1]
        self.is_unique = count == len(codes)

    def find(self, batch: Batch) -> Array:
        codes, valid = as_int64(batch.columns[self._asked])
        slots = np.empty(len(batch), np.int64)
        self._position = find_sorted(codes, valid, self._distinct, self._position, slots)
        return slots

    def _found(self, batch: Batch) -> tuple[Array | None, Array]:
        slots = self.find(batch)
        found = np.flatnonzero(slots >= 0)
        return (None, slots) if len(found) == len(slots) else (found, slots[found])

    def keep(self, belongs: Belongs) -> None:
        """All rows stay: the order is what finds them."""

    def save(self) -> OperatorState:
        return {**super().save(), "distinct": self._distinct, "position": self._position}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._distinct, self._position = state["distinct"], state["position"]


def can_merge(node: TwoInputs) -> bool:
    """True when both inputs are promised in the order of the one key, which compares as an integer."""
    matching = node.matching
    if matching.keys or len(matching.left_on) != 1:
        return False
    dtype = node.left.schema[matching.left_on[0]]
    is_whole = (dtype.is_integer() and dtype not in (pl.UInt64(), pl.Int128(), pl.UInt128())) or dtype.is_temporal()
    return is_whole and _in_order(node.left, matching.left_on[0]) and _in_order(node.right, matching.right_on[0])


def _in_order(node: Node, key: str) -> bool:
    """True when the node's rows come in the order of the column; forgetting it is always allowed."""
    while isinstance(node, (Where, Select)):
        if isinstance(node, Select):
            (source,) = (item.source_column for item in node.columns if item.name == key)
            if source is None:
                return False
            key = source
        node = node.parent
    return isinstance(node, Source) and node.is_relational and node.promises.sorted_by[:1] == (key,)
