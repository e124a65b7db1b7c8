"""SelectMany: one event per list item."""

from __future__ import annotations

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.columns import as_int64
from squill.engine.operator import EDGES, Operator, register
from squill.plan.nodes import SelectMany

__all__ = ["SelectManyOperator"]


@register(SelectMany)
class SelectManyOperator(Operator):
    """Each item has the event's lifetime; an empty or null list makes the event vanish."""

    demands = EDGES

    def __init__(self, node: SelectMany) -> None:
        super().__init__(node)
        self._column = node.column

    def push(self, batch: Batch, port: int = 0) -> None:
        lists = batch.columns[self._column]
        lengths = lists.arr.to_list().list.len() if isinstance(lists.dtype, pl.Array) else lists.list.len()
        counts = as_int64(lengths.fill_null(0))[0]
        rows = np.repeat(np.arange(len(batch)), counts)
        items = lists.filter(pl.Series(counts > 0)).explode()
        repeated = batch.with_columns(
            {name: series for name, series in batch.columns.items() if name != self._column}
        ).take(rows)
        columns = {name: items if name == self._column else repeated.columns[name] for name in batch.columns}
        self.emit(Batch(repeated.sync, repeated.other, columns))
