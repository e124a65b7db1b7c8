"""Series as plain arrays, and back: the form in which columns lie in state files.

Numbers and times are their values, text and bytes are offsets and data, each with a validity array where there
are nulls; every other type is an Arrow file in memory. So a column that grows keeps its beginning, and only
its end is new.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.columns import bytes_of, fixed_width, series_from, series_from_bytes, values_and_valid_of

__all__ = ["column_parts", "dtype_from_text", "dtype_to_text", "series_from_parts"]

Array = npt.NDArray[Any]


def column_parts(series: pl.Series) -> dict[str, Array]:
    """Return the arrays that the column is made of, by name.

    Examples
    --------
    >>> column_parts(pl.Series(["ab", None]))["data"].tobytes()
    b'ab'
    """
    dtype = series.dtype
    if isinstance(dtype, pl.Null):
        return {}
    if fixed_width(dtype):
        values, valid = values_and_valid_of(series)
        return {"values": values, **_validity(series, valid)}
    if isinstance(dtype, (pl.String, pl.Binary)):
        offsets, data, valid = bytes_of(series)
        first = int(offsets[0])
        if first:
            offsets = offsets - first
        return {"offsets": offsets, "data": data[first : first + int(offsets[-1])], **_validity(series, valid)}
    if isinstance(dtype, pl.Object):
        raise TypeError("a column of Python objects has no form in a file")
    file = io.BytesIO()
    pl.DataFrame([series.alias("")]).write_ipc(file, compat_level=pl.CompatLevel.newest())
    return {"arrow": np.frombuffer(file.getbuffer(), np.uint8)}


def _validity(series: pl.Series, valid: Array) -> dict[str, Array]:
    return {"valid": valid} if series.null_count() else {}


def series_from_parts(name: str, dtype: pl.DataType, size: int, parts: Mapping[str, Array]) -> pl.Series:
    """Return the column of `size` rows that gave these parts."""
    if "arrow" in parts:
        return pl.read_ipc(io.BytesIO(parts["arrow"].tobytes())).to_series().alias(name)
    if isinstance(dtype, pl.Null):
        return pl.Series(name, [None] * size, dtype)
    if "offsets" in parts:
        return series_from_bytes(name, parts["offsets"], parts["data"], parts.get("valid"), dtype)
    return series_from(name, parts["values"], parts.get("valid"), dtype)


def dtype_to_text(dtype: pl.DataType) -> str:
    """Return a type as text, exactly: the schema of an Arrow file."""
    return _dtype_to_text(dtype)


@lru_cache(maxsize=1024)
def _dtype_to_text(dtype: pl.DataType) -> str:
    file = io.BytesIO()
    pl.DataFrame(schema={"": dtype}).write_ipc(file, compat_level=pl.CompatLevel.newest())
    return base64.b64encode(file.getvalue()).decode()


@lru_cache(maxsize=1024)
def dtype_from_text(text: str) -> pl.DataType:
    return pl.read_ipc(io.BytesIO(base64.b64decode(text))).to_series().dtype
