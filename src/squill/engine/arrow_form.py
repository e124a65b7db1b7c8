"""Polars' columns as Arrow arrays that others can write.

Of lists that are all empty Polars may give the values as no rows from beyond the end of no bytes: what is left when
rows that had values are gone. Within Polars that means nothing. Arrow takes the place for a number of bytes that
are there: it refuses such an array, or writes a message whose length is negative, which nobody can read.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

__all__ = ["arrow_array", "arrow_table", "sound"]


def arrow_array(series: pl.Series) -> pa.Array:
    """Return the rows as one array."""
    array = series.to_arrow()
    return sound(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)


def arrow_table(frame: pl.DataFrame) -> pa.Table:
    """Return the rows as a table of the types that all readers of Arrow know."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            column = pa.chunked_array([sound(chunk) for chunk in table.column(place).chunks], field.type)
            table = table.set_column(place, field, column)
    return table


def sound(array: pa.Array) -> pa.Array:
    """Return the array; of nested ones, values that have no rows begin where they are.

    Examples
    --------
    >>> beyond = pa.Array.from_buffers(pa.int64(), 0, [None, None], offset=4)
    >>> lists = pa.Array.from_buffers(pa.large_list(pa.int64()), 2, [None, pa.py_buffer(bytes(24))], children=[beyond])
    >>> sound(lists).values.offset, sound(lists).to_pylist()
    (0, [[], []])
    """
    kind = array.type
    if not len(array):
        return pa.nulls(0, kind) if array.offset or pa.types.is_nested(kind) else array
    if pa.types.is_struct(kind):
        children = [array.field(place) for place in range(kind.num_fields)]
        found = [sound(child) for child in children]
        if all(one is other for one, other in zip(children, found, strict=True)):
            return array
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(found, fields=list(kind), mask=mask)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return array
    values = array.values
    settled = sound(values)
    if settled is values:
        return array
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, [settled])
