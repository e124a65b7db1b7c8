"""Frames of Arrow data, with all its names, and which types Arrow has no data of that becomes a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from squill.plan.storable import WIDE, inner_types

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_holds", "from_arrow"]

NUMBERED = (pl.Categorical, pl.Enum)


def from_arrow(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Return the rows as a frame with their names; Polars gives a column whose name is empty another one.

    Examples
    --------
    >>> import pyarrow
    >>> from_arrow(pyarrow.table({"x": [1], "": [2]})).columns
    ['x', '']
    """
    if "" not in rows.schema.names:
        return pl.DataFrame(rows)
    frame = pl.DataFrame(rows.rename_columns([str(place) for place in range(rows.num_columns)]))
    frame.columns = rows.schema.names
    return frame


def arrow_holds(columns: Mapping[str, pl.DataType]) -> bool:
    """Return whether pyarrow reads columns of these types, and Polars takes what it has read.

    Examples
    --------
    >>> [arrow_holds({"x": dtype}) for dtype in (pl.Enum(["a"]), pl.List(pl.Enum(["a"])), pl.Int128())]
    [True, False, False]
    """
    return all(_holds(dtype) for dtype in columns.values())


def _holds(dtype: pl.DataType, *, is_inner: bool = False) -> bool:
    if isinstance(dtype, WIDE) or (is_inner and isinstance(dtype, NUMBERED)):
        return False
    return all(_holds(inner, is_inner=True) for inner in inner_types(dtype))
