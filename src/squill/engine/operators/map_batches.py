"""MapBatches: the user's own row-wise Python over frames of payload."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.codecs import decoded, encode_value, encoded
from squill.engine.operator import EDGES, Operator, register
from squill.errors import UserFunctionError
from squill.plan.nodes import MapBatches
from squill.plan.schema import Schema

__all__ = ["MapBatchesOperator"]


@register(MapBatches)
class MapBatchesOperator(Operator):
    """One row out for each row in, or with `many` as many rows as the function returns for each row."""

    demands = EDGES

    def __init__(self, node: MapBatches) -> None:
        super().__init__(node)
        self._node = node
        self._what = "select_many" if node.many else "map_batches"
        self._encoders = dict(node.encoded)

    def push(self, batch: Batch, port: int = 0) -> None:
        columns = list(batch.columns.values())
        payload = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(batch))
        frame = decoded(payload, self._node.parent.codecs)
        self.emit(self._many(batch, frame) if self._node.many else self._one(batch, frame))

    def _one(self, batch: Batch, frame: pl.DataFrame) -> Batch:
        try:
            result = self._node.function(frame)
        except Exception as error:
            raise self._failed(error, frame) from error
        if not isinstance(result, pl.DataFrame):
            raise self._wrong(f"it returned {type(result).__name__}, not a Polars frame", frame)
        if result.height != len(batch):
            raise self._wrong(f"it returned {result.height} rows for {len(batch)}", frame)
        return batch.with_columns(self._checked(result, frame, batch))

    def _many(self, batch: Batch, frame: pl.DataFrame) -> Batch:
        rows: list[dict[str, Any]] = []
        counts = np.zeros(len(batch), np.int64)
        for i, row in enumerate(frame.iter_rows(named=True)):
            try:
                made = list(self._node.function(row))
            except Exception as error:
                raise self._failed(error, frame.slice(i, 1)) from error
            counts[i] = len(made)
            rows.extend(self._encoded_row(row) for row in made)
        keys = {name: frame.schema[name] for name in self._node.keys}
        own = {name: dtype for name, dtype in self._node.output.items() if name not in keys}
        try:
            result = pl.DataFrame(rows, schema=own) if rows else Schema(own).empty_frame()
        except (pl.exceptions.PolarsError, TypeError) as error:
            raise self._wrong(f"its rows do not fit the schema: {error}", frame) from error
        places = np.repeat(np.arange(len(batch)), counts)
        repeated = batch.take(places)
        columns = {**{name: repeated.columns[name] for name in keys}, **result.to_dict()}
        return Batch(repeated.sync, repeated.other, {name: columns[name] for name in self._node.output})

    def _encoded_row(self, row: dict[str, Any]) -> dict[str, Any]:
        if not self._encoders:
            return row
        return {name: encode_value(value, self._encoders.get(name)) for name, value in row.items()}

    def _checked(self, result: pl.DataFrame, frame: pl.DataFrame, batch: Batch) -> dict[str, pl.Series]:
        columns: dict[str, pl.Series] = {}
        for name, dtype in self._node.output.items():
            if name in self._node.keys:
                columns[name] = batch.columns[name]
                continue
            if name not in result.columns:
                raise self._wrong(f"the column {name!r} is missing from what it returned", frame)
            series = result.get_column(name).rechunk()
            if name in self._encoders:
                series = encoded(series, self._encoders[name])
            if series.dtype != dtype:
                raise self._wrong(f"the column {name!r} is {series.dtype}, not {dtype} as schema= says", frame)
            columns[name] = series.alias(name)
        return columns

    def _failed(self, error: Exception, frame: pl.DataFrame) -> UserFunctionError:
        return self._wrong(f"it raised {type(error).__name__}: {error}", frame)

    def _wrong(self, what: str, frame: pl.DataFrame) -> UserFunctionError:
        name = getattr(self._node.function, "__name__", repr(self._node.function))
        sample = frame.row(0, named=True) if frame.height else "no rows"
        return UserFunctionError(
            f"{self._what}({name}): {what}; the first row was {sample}",
            "the function must turn each row into rows of the columns that schema= names.",
        )
