"""Rows as byte strings that compare as the rows do, and the order of rows inside an instant.

`encode_rows` gives each row bytes such that comparing bytes is comparing column by column: nulls first,
NaN last and equal to itself, -0.0 equal to 0.0. No row's bytes are the beginning of another's, so bytes
of the same columns may be put together and compared across batches.

=====================================  ==============================================================
column                                 bytes
=====================================  ==============================================================
any but Boolean and Null               first 0 for null, 1 for a value
integers, dates, times, durations      8 bytes, largest first, sign inverted (zeros for null)
Enum                                   8 bytes, the place of its category (zeros for null)
floats                                 8 bytes, in the order of `float_codes` (zeros for null)
Decimal, 128-bit integers              16 bytes (zeros for null)
Boolean                                0 null, 1 false, 2 true
String, Binary, Categorical            the bytes or text, 0 as 0 255, closed by 0 0 (nothing for null)
Struct                                 the fields (nothing for null)
List, Array                            each element after a 1, closed by 0 (nothing for null)
Map                                    as a List of its entries, in the order in which it holds them
Null                                   0
=====================================  ==============================================================

A descending column has all its bytes inverted: its nulls come last and its NaN first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from squill.engine.columns import (
    as_float64,
    as_int64,
    bytes_of,
    decimal_limbs,
    read_only,
    series_from_bytes,
    valid_of,
    values_and_valid_of,
    values_of,
)
from squill.engine.kernels import row_order as kernels
from squill.engine.multiset import float_codes, uint64_codes

__all__ = ["as_binary", "encode_rows", "sort_permutation"]

Ints: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
# Appends a column's bytes to rows: (flip, cursors, data).
Writer: TypeAlias = Callable[[int, Ints, Bytes], None]

_WORD = 2**64


def encode_rows(columns: Sequence[pl.Series], descending: Sequence[bool] | None = None) -> tuple[Ints, Bytes]:
    """Return the encoded rows: row i is ``data[offsets[i] : offsets[i + 1]]``.

    Parameters
    ----------
    columns
        Columns of equal length, the most significant first.
    descending
        One flag per column; a descending column has its nulls last.

    Raises
    ------
    TypeError
        For a column of Python objects or of another type without an order.

    Examples
    --------
    >>> offsets, data = encode_rows([pl.Series([2, -1, None]), pl.Series(["b", "a", "a"])])
    >>> rows = [bytes(data[offsets[i] : offsets[i + 1]]) for i in range(3)]
    >>> sorted(range(3), key=rows.__getitem__)
    [2, 1, 0]
    """
    rows = len(columns[0]) if columns else 0
    flags = [False] * len(columns) if descending is None else descending
    lengths = np.zeros(rows, np.int64)
    writers = [_column(column, lengths) for column in columns]
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    cursors = offsets[:-1].copy()
    data = np.empty(int(offsets[-1]), np.uint8)
    for writer, flag in zip(writers, flags, strict=True):
        writer(255 if flag else 0, cursors, data)
    return offsets, data


def as_binary(offsets: Ints, data: Bytes) -> pl.Series:
    r"""Return encoded rows as a Binary column, sharing the memory of the data.

    Examples
    --------
    >>> as_binary(*encode_rows([pl.Series([False, True])])).to_list()
    [b'\x01', b'\x02']
    """
    return series_from_bytes("", offsets, data, None, pl.Binary())


def sort_permutation(sync: Ints, columns: Sequence[pl.Series]) -> Ints | None:
    """Return the order of rows by `sync` and, inside an instant, by the columns; None for "as they are".

    Rows that are equal keep their order. Only rows that share their `sync` with another are encoded, so
    distinct increasing times cost one pass over them.

    Examples
    --------
    >>> sort_permutation(np.array([1, 2, 2]), [pl.Series(["c", "b", "a"])]).tolist()
    [0, 2, 1]
    >>> sort_permutation(np.array([1, 2, 3]), [pl.Series(["c", "b", "a"])]) is None
    True
    """
    times = read_only(np.asarray(sync, np.int64))
    kind = kernels.classify(times)
    if kind == kernels.INCREASING or (kind == kernels.TIED and not columns):
        return None
    order = np.argsort(times, kind="stable") if kind == kernels.UNORDERED else np.arange(times.size)
    moved = _sort_ties(times, order, columns)
    return order if moved or kind == kernels.UNORDERED else None


def _sort_ties(sync: Ints, order: Ints, columns: Sequence[pl.Series]) -> bool:
    """Sort the runs of `order` with equal `sync` by the columns, in place; say whether any row moved."""
    if not columns:
        return False
    rows, starts = np.empty(sync.size, np.int64), np.empty(sync.size // 2 + 1, np.int64)
    tied, runs = kernels.find_ties(sync, read_only(order), rows, starts)
    rows = rows[:tied]
    whole = tied == sync.size and np.array_equal(rows, np.arange(tied))
    offsets, data = encode_rows(columns if whole else [column.gather(rows) for column in columns])
    places = np.arange(tied)
    if not kernels.sort_ties(read_only(starts), runs, read_only(offsets), read_only(data), places):
        return False
    order[_tied_places(sync[order])] = rows[places]
    return True


def _tied_places(sync: Ints) -> NDArray[np.bool_]:
    tied = np.zeros(sync.size, np.bool_)
    equal = sync[1:] == sync[:-1]
    tied[1:] |= equal
    tied[:-1] |= equal
    return tied


def _column(column: pl.Series, lengths: Ints) -> Writer:
    """Add the lengths of a column's bytes and return what writes them."""
    dtype = column.dtype
    if isinstance(dtype, pl.Boolean):
        lengths += 1
        flags, valid = values_and_valid_of(column)
        return lambda flip, cursors, data: kernels.write_flags(flags, valid, flip, cursors, data)
    lengths += 1
    if isinstance(dtype, (pl.String, pl.Binary, pl.Categorical)):
        return _text(column, lengths)
    if isinstance(dtype, pl.Struct) and dtype.fields:
        return _struct(column, lengths)
    if isinstance(dtype, (pl.List, pl.Array)):
        return _list(column.arr.to_list() if isinstance(dtype, pl.Array) else column, lengths)
    if isinstance(dtype, pl.Map):
        return _list(column.map.entries(), lengths)
    if isinstance(dtype, (pl.Null, pl.Struct)):
        return _words([], valid_of(column), lengths)
    return _words(*_codes(column), lengths)


def _codes(column: pl.Series) -> tuple[list[Ints], Bytes]:
    """Return a column of fixed width as one or two integers per row, in order, and its validity."""
    dtype = column.dtype
    if isinstance(dtype, pl.Decimal):
        high, low, valid = decimal_limbs(column)
        return [high, uint64_codes(low.view(np.uint64))], valid
    if dtype.is_float():
        floats, valid = as_float64(column)
        return [float_codes(floats)], valid
    if isinstance(dtype, (pl.Int128, pl.UInt128)):
        return _wide_codes(column), values_of(column.is_not_null())
    values, valid = as_int64(column.to_physical() if isinstance(dtype, pl.Enum) else column)
    return [uint64_codes(values.view(np.uint64)) if isinstance(dtype, pl.UInt64) else values], valid


def _wide_codes(column: pl.Series) -> list[Ints]:
    filled = column.fill_null(0)
    word = pl.Series([_WORD], dtype=column.dtype)
    high = filled // word
    low = (filled - high * word).cast(pl.UInt64)
    if isinstance(column.dtype, pl.Int128):
        high_codes = high.cast(pl.Int64).to_numpy()
    else:
        high_codes = uint64_codes(high.cast(pl.UInt64).to_numpy())
    return [high_codes, uint64_codes(low.to_numpy())]


def _words(words: list[Ints], valid: Bytes, lengths: Ints) -> Writer:
    lengths += 8 * len(words)
    frozen = [read_only(codes) for codes in words]

    def write(flip: int, cursors: Ints, data: Bytes) -> None:
        kernels.write_markers(valid, flip, cursors, data)
        for codes in frozen:
            kernels.write_words(codes, valid, flip, cursors, data)

    return write


def _text(column: pl.Series, lengths: Ints) -> Writer:
    offsets, text, valid = bytes_of(column)
    used = text[int(offsets[0]) : int(offsets[-1])]
    has_zeros = int(np.count_nonzero(used)) < used.size
    kernels.text_lengths(offsets, text, valid, has_zeros, lengths)

    def write(flip: int, cursors: Ints, data: Bytes) -> None:
        kernels.write_markers(valid, flip, cursors, data)
        kernels.write_text(offsets, text, valid, has_zeros, flip, cursors, data)

    return write


def _frozen_rows(columns: Sequence[pl.Series]) -> tuple[Ints, Bytes]:
    offsets, data = encode_rows(columns)
    return read_only(offsets), read_only(data)


def _struct(column: pl.Series, lengths: Ints) -> Writer:
    offsets, rows = _frozen_rows(column.struct.unnest().get_columns())
    valid = valid_of(column)
    lengths += np.diff(offsets) * valid

    def write(flip: int, cursors: Ints, data: Bytes) -> None:
        kernels.write_markers(valid, flip, cursors, data)
        kernels.write_rows(offsets, rows, valid, flip, cursors, data)

    return write


def _list(column: pl.Series, lengths: Ints) -> Writer:
    valid = valid_of(column)
    counts = read_only(column.list.len().cast(pl.Int64).fill_null(-1).to_numpy())
    elements = column.filter(pl.Series(counts > 0)).explode()
    offsets, rows = _frozen_rows([elements])
    kernels.list_lengths(counts, offsets, lengths)

    def write(flip: int, cursors: Ints, data: Bytes) -> None:
        kernels.write_markers(valid, flip, cursors, data)
        kernels.write_lists(counts, offsets, rows, flip, cursors, data)

    return write
