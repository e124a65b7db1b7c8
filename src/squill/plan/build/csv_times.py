"""Dates and times in csv files, each read for itself.

Polars takes the notation of a column, year or day first and with a zone or without, from the first value of whatever
piece of a file it reads at once. The same value would then be read in one piece and refused in another, or lose its
zone in it, depending on how many shards read the file. So values come as text, which is sorted by notation first.
"""

from __future__ import annotations

import polars as pl

from squill.plan.schema import Schema

__all__ = ["as_text", "read_times"]

ZONE = r":\d.*(Z|[+-]\d\d(:?\d\d)?)\s*$"
YEAR_FIRST = r"^\s*[+-]?\d{3,}\D"
FITS_NOTHING = "no time"
"""A notation that no value has: an error then names the value."""


def as_text(schema: Schema) -> Schema:
    """Return the columns with dates and times as text."""
    return Schema({name: pl.String() if _is_read(dtype) else dtype for name, dtype in schema.items()})


def read_times(lazy: pl.LazyFrame, schema: Schema, *, is_given: bool) -> pl.LazyFrame:
    """Return a csv file's rows with the dates and times of the schema, of columns that the file has.

    A type that was guessed says whether values have zones: others are an error. One that the user gave (`is_given`)
    takes both, and values without a zone as UTC.
    """
    names = [name for name in lazy.collect_schema() if name in schema and _is_read(schema[name])]
    return lazy.with_columns(_read(pl.col(name), schema[name], is_given=is_given).alias(name) for name in names)


def _is_read(dtype: pl.DataType) -> bool:
    return isinstance(dtype, (pl.Date, pl.Datetime))


def _read(text: pl.Expr, dtype: pl.DataType, *, is_given: bool) -> pl.Expr:
    text = pl.when(text != "").then(text)
    has_zone, is_year_first = text.str.contains(ZONE), text.str.contains(YEAR_FIRST)
    notations = [~has_zone & is_year_first, ~has_zone & ~is_year_first]
    if isinstance(dtype, pl.Datetime) and (is_given or dtype.time_zone is not None):
        notations = [*notations, has_zone] if is_given else [has_zone]
    read = pl.coalesce(_parsed(pl.when(notation).then(text), dtype) for notation in notations)
    return pl.coalesce(read, _parsed(pl.when(read.is_null()).then(text), dtype, FITS_NOTHING))


def _parsed(text: pl.Expr, dtype: pl.DataType, notation: str | None = None) -> pl.Expr:
    """Return text of one notation as dates or times; null where it is none, but an error where the notation is said."""
    strict = notation is not None
    if not isinstance(dtype, pl.Datetime):
        return text.str.to_date(notation, strict=strict)
    if strict:
        return text.str.to_datetime(notation, time_unit=dtype.time_unit, time_zone=dtype.time_zone)
    utc = text.str.to_datetime(time_unit=dtype.time_unit, time_zone="UTC", strict=False)
    return utc.dt.replace_time_zone(None) if dtype.time_zone is None else utc.dt.convert_time_zone(dtype.time_zone)
