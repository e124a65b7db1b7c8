"""Evaluate row-wise expressions over a batch: one Polars call for all of them, none for plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.arithmetic import Arithmetic
from squill.engine.batch import Batch
from squill.engine.columns import framed, series_from, values_of
from squill.engine.failing_row import first_failing
from squill.engine.kernels.lifetimes import bounds
from squill.errors import InputError, TimeOverflowError
from squill.plan.expressions import END, START, TIME_NAMES, Expression
from squill.time import INFINITY, MINUS_INFINITY, TimeType

__all__ = ["Evaluator", "time_series"]


def time_series(
    name: str, ticks: npt.NDArray[np.int64], time: TimeType, extremes: tuple[int, int] | None = None
) -> pl.Series:
    """Return ticks as a column of the stream's time type; infinities are null.

    `extremes` are the least and the greatest of them, where the caller knows them.
    """
    physical = _physical(time.dtype)
    values, valid = ticks, None
    low, high = bounds(ticks) if extremes is None else extremes
    if low == MINUS_INFINITY or high == INFINITY:
        finite = (ticks != INFINITY) & (ticks != MINUS_INFINITY)
        values, valid = np.where(finite, ticks, 0), finite.view(np.uint8)
    if physical != np.int64 and len(values):
        _check_fits(name, values, physical, time)
    return series_from(name, values.astype(physical, copy=False), valid, time.dtype)


@cache
def _physical(dtype: pl.DataType) -> np.dtype[Any]:
    return values_of(pl.Series([], dtype=dtype)).dtype


def _check_fits(name: str, ticks: npt.NDArray[np.int64], physical: np.dtype[Any], time: TimeType) -> None:
    """Raise when a time is outside what the input's own time type can hold."""
    limits = np.iinfo(physical)
    low, high = int(ticks.min()), int(ticks.max())
    if low < limits.min or high > limits.max:
        raise TimeOverflowError(
            f"the {name.strip('_').removeprefix('squill_')} time {low if low < limits.min else high} does not fit "
            f"{time}, the type of the input's times",
            "cast the time column to a wider type before, such as Int64.",
        )


class Evaluator:
    """A fixed list of expressions over one stream's batches.

    Plain columns are handed through untouched, arithmetic is done column by column; anything else is one Polars call.
    """

    def __init__(self, expressions: Sequence[Expression], time: TimeType | None, operator: str) -> None:
        self._expressions = tuple(expressions)
        self._time = time
        self._operator = operator
        self._plain = {item.name: item.source_column for item in expressions if item.source_column is not None}
        self._computed = [item for item in expressions if item.source_column is None]
        # Numbered, so that no output can take the name of the column that gives the length.
        self._exprs = [item.expr.alias(str(number)) for number, item in enumerate(self._computed)]
        roots = dict.fromkeys(root for item in self._computed for root in item.roots)
        self._roots = [root for root in roots if root not in (START, END)]
        self._needs_start, self._needs_end = START in roots, END in roots
        # Literals alone have no length of their own.
        self._needs_length = not any(item.roots for item in self._computed)
        quick = [Arithmetic.of(item) for item in self._computed]
        self._quick = None if None in quick else [item for item in quick if item is not None]

    def __call__(self, batch: Batch) -> dict[str, pl.Series]:
        """Return the value of each expression for each row, by name, in order."""
        computed = self._compute(batch) if self._computed else {}
        result: dict[str, pl.Series] = {}
        for item in self._expressions:
            source = self._plain.get(item.name)
            if source is None:
                result[item.name] = computed[item.name]
            else:
                series = batch.columns[source]
                result[item.name] = series if source == item.name else series.alias(item.name)
        return result

    def _compute(self, batch: Batch) -> dict[str, pl.Series]:
        values = self._without_query(batch)
        if values is None:
            values = self._by_query(batch)
        return {item.name: series.alias(item.name) for item, series in zip(self._computed, values, strict=True)}

    def _without_query(self, batch: Batch) -> list[pl.Series] | None:
        values: list[pl.Series] = []
        for quick in self._quick or ():
            value = quick(batch.columns)
            if value is None:
                return None
            values.append(value)
        return values or None

    def _by_query(self, batch: Batch) -> list[pl.Series]:
        frame = self._frame(batch)
        try:
            result = self._select(frame)
        except pl.exceptions.PolarsError as error:
            raise self._failed(batch, frame, error) from error
        return result.get_columns()[-len(self._exprs) :]

    def _select(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(*self._exprs) if not self._needs_length else frame.select("rows", *self._exprs)

    def _failed(self, batch: Batch, frame: pl.DataFrame, error: Exception) -> InputError:
        found = first_failing(frame, self._select)
        what, place = str(error).splitlines()[0], f" on {len(batch)} rows"
        if found is not None:
            row, what = found
            shown = {name: series[row] for name, series in batch.columns.items()}
            times = {f"{TIME_NAMES[name]}()": frame[name][row] for name in (START, END) if name in frame.columns}
            place = f" for the row {shown | times}"
        return InputError(
            f"{self._operator}: the expressions failed{place}: {what.replace(START, 'start()').replace(END, 'end()')}",
            "check the values; .cast(…, strict=False) gives null instead of an error.",
        )

    def _frame(self, batch: Batch) -> pl.DataFrame:
        columns = [batch.columns[name] for name in self._roots]
        if self._needs_length:
            columns.append(pl.Series("rows", batch.sync))
        if self._time is not None and self._needs_start:
            columns.append(time_series(START, np.minimum(batch.sync, batch.other), self._time))
        if self._time is not None and self._needs_end:
            columns.append(time_series(END, batch.other, self._time))
        return framed(columns)
