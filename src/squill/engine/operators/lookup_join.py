"""Join with relational rows: a table by key, which the other side streams past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import polars as pl

from squill.engine.aligned import LEFT
from squill.engine.batch import Batch
from squill.engine.columns import Array
from squill.engine.lookup import LookupOperator, shown_columns
from squill.engine.pair_columns import PairColumns
from squill.plan.nodes import Join

__all__ = ["LookupJoin"]


class LookupJoin(LookupOperator):
    """Every streaming row becomes its matches, with its lifetime untouched."""

    node: Join

    def __init__(self, node: Join, table_port: int) -> None:
        self._asking: dict[str, pl.Series] = {}
        super().__init__(node, table_port)

    def _collect(self, port: int) -> None:
        super()._collect(port)
        self._streamed = shown_columns(self.node, 1 - port)
        sides = (self._table.columns, self._asked) if port == LEFT else (self._asked, self._table.columns)
        self._pairs = PairColumns(self.node, *sides)

    def _again(self) -> Self:
        return type(self)(self.node, self._table_port)

    def _columns_kept(self) -> Sequence[str]:
        return shown_columns(self.node, self._table_port)

    def _asked(self, _rows: Array) -> dict[str, pl.Series]:
        return dict(self._asking)

    def look_up(self, batch: Batch) -> None:
        streamed = batch.with_columns({name: batch.columns[name] for name in self._streamed})
        for rows, places in self._table.pairs(batch):
            self._emit_pairs(streamed if rows is None else streamed.take(rows), places)

    def _emit_pairs(self, asking: Batch, places: Array) -> None:
        self._asking = asking.columns
        mask, columns = self._pairs.matching(places, places)
        self._asking = {}
        pairs = asking.with_columns(columns)
        self.emit(pairs if mask is None else pairs.filter(mask))
