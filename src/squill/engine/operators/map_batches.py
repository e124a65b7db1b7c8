"""MapBatches: the user's own row-wise Python over frames of payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.codecs import decoded, encode_value, encoded
from squill.engine.columns import framed
from squill.engine.operator import EDGES, Operator, register
from squill.errors import UserFunctionError
from squill.plan.nodes import MapBatches
from squill.wording import kind_of, shortened

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
        payload = framed(columns) if columns else pl.DataFrame(height=len(batch))
        frame = decoded(payload, self._node.parent.codecs)
        self.emit(self._many(batch, frame) if self._node.many else self._one(batch, frame))

    def _one(self, batch: Batch, frame: pl.DataFrame) -> Batch:
        try:
            result = self._node.function(frame)
        except Exception as error:
            raise self._failed(error, frame) from error
        if not isinstance(result, pl.DataFrame):
            raise self._wrong(f"it returned {kind_of(result)}, not a Polars frame", frame)
        if result.height != len(batch):
            raise self._wrong(f"it returned {result.height} rows for {len(batch)}", frame)
        return batch.with_columns(self._checked(result, frame, batch))

    def _many(self, batch: Batch, frame: pl.DataFrame) -> Batch:
        own = {name: dtype for name, dtype in self._node.output.items() if name not in self._node.keys}
        rows: list[Mapping[str, Any]] = []
        counts = np.zeros(len(batch), np.int64)
        for i, row in enumerate(frame.iter_rows(named=True)):
            try:
                made = list(self._node.function(row))
            except Exception as error:
                raise self._failed(error, frame.slice(i, 1)) from error
            for item in made:
                fault = _fault(item, own)
                if fault is not None:
                    raise self._wrong(fault, frame.slice(i, 1))
            counts[i] = len(made)
            rows.extend(made)
        repeated = batch.take(np.repeat(np.arange(len(batch)), counts))
        columns = {name: repeated.columns[name] for name in self._node.keys}
        for name, dtype in own.items():
            columns[name] = self._column(name, dtype, [row[name] for row in rows], frame)
        return Batch(repeated.sync, repeated.other, {name: columns[name] for name in self._node.output})

    def _column(self, name: str, dtype: pl.DataType, values: list[Any], frame: pl.DataFrame) -> pl.Series:
        codec = self._encoders.get(name)
        if codec is not None:
            values = [encode_value(value, codec) for value in values]
        try:
            # Strict: a value that does not fit is an error, never cut down to what fits.
            return pl.Series(name, values, dtype)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError) as error:
            first_line = str(error).splitlines()[0]
            raise self._wrong(f"its values of {name!r} are not {dtype} as schema= says: {first_line}", frame) from error

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


def _fault(row: object, columns: Mapping[str, pl.DataType]) -> str | None:
    """Return what is wrong with a row that the user's function returned."""
    # Asking for the abstract Mapping costs a microsecond, asking for a dict nothing.
    if type(row) is not dict and not isinstance(row, Mapping):
        return f"it returned {shortened(row)}, not a row"
    missing = next((name for name in columns if name not in row), None)
    return (
        None if missing is None else f"the column {missing!r} is missing from the row {shortened(row)} that it returned"
    )
