"""The row of an answer that somebody asks about, by its number or by values that it has.

Python has no nanoseconds and polars does not compare Python objects: columns of such are compared as Python shows
their values, and objects by their bytes. Where rows that differ look alike to Python, their numbers tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import polars as pl
from polars.datatypes import DataType, DataTypeClass

from squill.engine.codecs import encode_value
from squill.errors import PlanError, SquillError
from squill.plan.codec import Codec
from squill.plan.schema import Schema
from squill.wording import shortened

__all__ = ["AskedRow", "asked_row", "rows_like"]

AskedRow = Mapping[str, Any] | pl.DataFrame | int

NEAR = 1e-9
"""How far a float that is computed again may be from what it was, for its size: sums depend on the order of rows."""

WAYS = "give a dict, such as early.frame.row(0, named=True), the number of a row, or one row as a frame."


def asked_row(row: Any, shown: pl.DataFrame, stored: pl.DataFrame, codecs: Mapping[str, Codec]) -> pl.DataFrame:
    """Return the asked values as the answer has stored them, in a frame of one row; refuse what is no row of it.

    `shown` and `stored` are the answer, with its objects as people see them and as bytes.
    """
    if isinstance(row, (int, np.integer)) and not isinstance(row, bool):
        row = int(row)
        if not -shown.height <= row < shown.height:
            raise PlanError(f"provenance: the answer has {shown.height} rows, and none has the number {row}", WAYS)
        return stored.slice(row % shown.height, 1)
    given = _columns_of(row)
    names = list(given)
    for name in names:
        Schema(shown.schema.items()).require(name, "provenance")
    like = [_like(given[name], shown[name], stored[name], codecs.get(name)) for name in names]
    found = reduce(and_, like, pl.repeat(True, shown.height, eager=True))
    if not found.any():
        described = dict(row) if isinstance(row, Mapping) else row.row(0, named=True)
        raise PlanError(
            f"provenance: the answer has no row {shortened(described)}", "give one of early.frame.rows(named=True)."
        )
    first = found.arg_true()[0]
    wanted = stored.select(names).slice(first, 1)
    others = (found & ~rows_like(stored, wanted)).arg_true()
    if others.len():
        raise PlanError(
            f"provenance: rows {first} and {others[0]} of the answer differ, but look alike to Python",
            f"give the row's number, provenance({first}), or the row as a frame, provenance(early.frame[{first}]).",
        )
    return wanted


def _columns_of(row: Any) -> Mapping[str, Any]:
    """Return what is asked of each column: a value, or a series of one, which says it exactly."""
    if isinstance(row, pl.DataFrame):
        if row.height != 1:
            raise PlanError(f"provenance: a frame of {row.height} rows is given", WAYS)
        return {series.name: series for series in row.get_columns()}
    is_row = isinstance(row, Mapping) and row and all(isinstance(name, str) for name in row)
    if not is_row or any(isinstance(value, (pl.Series, pl.DataFrame)) for value in row.values()):
        raise PlanError(f"provenance: {shortened(row)} is not a row", WAYS)
    return row


def _like(asked: Any, shown: pl.Series, stored: pl.Series, codec: Codec | None) -> pl.Series:
    """Return of each row of a column whether it has the value."""
    if isinstance(asked, pl.Series):
        if asked.dtype == stored.dtype:
            return _equal(stored, asked)
        asked = asked.to_list()[0]
    if codec is not None:
        return _same_objects(asked, shown, stored, codec)
    try:
        value = pl.select(pl.lit(asked, shown.dtype)).to_series()
        if shown.dtype.is_integer() and value[0] != asked:
            raise ValueError  # which Polars would round  # noqa: TRY301
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(
            f"provenance: {shown.name!r} is {shortened(asked)}, but the column is {shown.dtype}",
            "give a row as early.frame.rows(named=True) has it.",
        ) from error
    if not _has_nanoseconds(shown.dtype):
        return _equal(stored, value)
    (seen,) = value.to_list()
    return pl.Series([_looks_like(found, seen) for found in shown.to_list()], dtype=pl.Boolean)


def _same_objects(asked: Any, shown: pl.Series, stored: pl.Series, codec: Codec) -> pl.Series:
    """Compare bytes, as keys do; what the answer has shown is found also where its bytes come out another way."""
    try:
        wanted = encode_value(asked, codec)
    except SquillError as error:
        raise PlanError(f"provenance: {shown.name!r}: {error.what}", error.hint) from error
    same = [there is asked or found == wanted for there, found in zip(shown, stored, strict=True)]
    return pl.Series(same, dtype=pl.Boolean)


def _has_nanoseconds(dtype: DataType | DataTypeClass) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(map(_has_nanoseconds, dtype.to_schema().values()))
    if isinstance(dtype, (pl.List, pl.Array)):
        return _has_nanoseconds(dtype.inner)
    return dtype == pl.Time or (isinstance(dtype, (pl.Datetime, pl.Duration)) and dtype.time_unit == "ns")


def _looks_like(one: Any, other: Any) -> bool:
    """Whether two values are the same to Python; unlike there, NaN is NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_looks_like, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return all(map(_looks_like, one.values(), other.values()))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def rows_like(frame: pl.DataFrame, wanted: pl.DataFrame, *, nearly: bool = False) -> pl.Series:
    """Return of each row whether it has the values of the one row that is wanted; null is equal to null."""
    like = [_equal(frame[series.name], series, nearly=nearly) for series in wanted.get_columns()]
    return reduce(and_, like, pl.repeat(True, frame.height, eager=True))


def _equal(column: pl.Series, value: pl.Series, *, nearly: bool = False) -> pl.Series:
    equal = column.eq_missing(value.new_from_index(0, column.len()))
    if not nearly or value.null_count():
        return equal
    if isinstance(column.dtype, pl.Struct):
        names = column.struct.fields
        fields = [_equal(column.struct.field(name), value.struct.field(name), nearly=True) for name in names]
        return reduce(and_, fields, column.is_not_null())
    if not column.dtype.is_float():
        return equal
    return equal | ((column - value[0]).abs() <= NEAR * abs(value[0])).fill_null(value=False)
