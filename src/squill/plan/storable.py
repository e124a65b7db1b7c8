"""Which types Arrow files hold, and in what form the others may lie in files of our own."""

from __future__ import annotations

import polars as pl

from squill.errors import PlanError
from squill.plan.schema import Schema

__all__ = ["inner_types", "refuse_unstorable", "storable", "storable_type"]

WIDE = (pl.Int128, pl.UInt128)
NESTED = (pl.List, pl.Array, pl.Struct)


def storable_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type as which a column can lie in an Arrow file: numbers of 128 bits become text.

    Examples
    --------
    >>> storable_type(pl.List(pl.Int128()))
    List(String)
    >>> storable_type(pl.Int64())
    Int64
    """
    if isinstance(dtype, WIDE):
        return pl.String()
    if isinstance(dtype, pl.List):
        return pl.List(storable_type(_instance(dtype.inner)))
    if isinstance(dtype, pl.Array):
        return pl.Array(storable_type(_instance(dtype.inner)), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: storable_type(_instance(field.dtype)) for field in dtype.fields})
    return dtype


def _instance(dtype: object) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()  # type: ignore[operator]


def storable(series: pl.Series) -> pl.Series:
    """Return the column as Arrow can hold it; a cast to its type brings it back.

    Examples
    --------
    >>> storable(pl.Series([2**100], dtype=pl.Int128())).to_list()
    ['1267650600228229401496703205376']
    """
    dtype = series.dtype
    if not isinstance(dtype, (*WIDE, *NESTED)):
        return series
    form = storable_type(dtype)
    return series if form == dtype else series.cast(form)


def refuse_unstorable(schema: Schema, operator: str, file_format: str | None = None) -> None:
    """Raise for a column that has no form in files which others are to read, or that is not read back from them."""
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Object):
            raise PlanError(
                f"{operator}: the column {name!r} holds Python objects, which have no form in a file",
                "turn it into a number or text with map_batches(…), or leave it out.",
            )
        if isinstance(dtype, (*WIDE, *NESTED)) and storable_type(dtype) != dtype:
            raise PlanError(
                f"{operator}: the column {name!r} is {dtype}, and Arrow has no numbers of 128 bits",
                f"cast it before, for instance to text: pl.col({name!r}).cast({_shown(storable_type(dtype))}).",
            )
        if (missing := _missing(dtype, file_format)) is not None:
            raise PlanError(
                f"{operator}: the column {name!r} is {dtype}, and {missing}",
                "leave it out: there is nothing in it.",
            )


def _missing(dtype: pl.DataType, file_format: str | None) -> str | None:
    """Return what a format lacks for a type, or for one inside it."""
    if isinstance(dtype, pl.Array) and dtype.size == 0:
        return "arrays of no values are not read back from files"
    if isinstance(dtype, pl.Struct) and not dtype.fields and file_format == "parquet":
        return "parquet has no structs without fields"
    found = (_missing(inner, file_format) for inner in inner_types(dtype))
    return next((missing for missing in found if missing is not None), None)


def inner_types(dtype: pl.DataType) -> list[pl.DataType]:
    """Return the types of what a value holds.

    Examples
    --------
    >>> inner_types(pl.Struct({"a": pl.Int8})), inner_types(pl.List(pl.Date)), inner_types(pl.Time())
    ([Int8], [Date], [])
    """
    if isinstance(dtype, pl.Struct):
        return [_instance(field.dtype) for field in dtype.fields]
    return [_instance(dtype.inner)] if isinstance(dtype, (pl.List, pl.Array)) else []


def _shown(dtype: pl.DataType) -> str:
    return f"pl.{dtype}"
