"""What a chart of an answer shows: one number of each row, and how far off it may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from squill.errors import PlanError
from squill.plan.confidence import FIELDS, is_interval_type

__all__ = ["Bar", "Chosen", "bars_of", "charted_column"]

Chosen = str | bool
"""Which column is drawn: one of this name, or the most telling one, or none."""


@dataclass(frozen=True)
class Bar:
    """A row of an answer: `label` tells it from others, bounds are None where they are not known."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


def charted_column(schema: pl.Schema, chosen: Chosen) -> str | None:
    """Return the column to chart: the chosen one, or the first with an interval, or the last number; None for none."""
    if chosen is False:
        return None
    numbers = [name for name, dtype in schema.items() if dtype.is_numeric() or is_interval_type(dtype)]
    if chosen is True:
        intervals = [name for name in numbers if is_interval_type(schema[name])]
        return next(iter(intervals or reversed(numbers)), None)
    if chosen not in numbers:
        found = f"is {schema[chosen]}" if chosen in schema else "is not there"
        can_be = ", ".join(numbers) or "none"
        raise PlanError(
            f"show: chart={chosen!r} {found}; the columns of numbers are: {can_be}", "name one, or say chart=False."
        )
    return chosen


def bars_of(rows: pl.DataFrame, column: str) -> list[Bar | None]:
    """Return a bar for each row, None where its value is null or not finite."""
    names = _labelling(rows.schema, column)
    labels = [", ".join("" if value is None else str(value) for value in row) for row in rows.select(names).rows()]
    if not names:
        labels = [str(number + 1) for number in range(rows.height)]
    series = rows[column]
    if is_interval_type(series.dtype):
        values, lows, highs = (series.struct.field(name).to_list() for name in FIELDS)
    else:
        values = series.cast(pl.Float64).to_list()
        lows = highs = [None] * rows.height
    rows_of = zip(labels, values, map(_finite, lows), map(_finite, highs), strict=True)
    return [None if _finite(value) is None else Bar(label, value, low, high) for label, value, low, high in rows_of]


def _labelling(schema: pl.Schema, column: str) -> list[str]:
    """Return the columns that tell rows apart: those that are no numbers, or the first, as keys come first."""
    names = [name for name, dtype in schema.items() if not dtype.is_numeric() and not isinstance(dtype, pl.Struct)]
    first = next(iter(schema))
    return names or ([] if first == column else [first])


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
