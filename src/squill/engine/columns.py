"""The one place where Polars columns become plain arrays for kernels, and arrays become columns again.

A kernel sees a column as its *physical values* and a *validity* array: one uint8 per row, 1 where there
is a value. Both come straight from the Arrow buffers, so an integer column with nulls stays an integer
column (`Series.to_numpy` would turn it into floats) and nothing is copied that need not be. Under a null
the value is whatever the buffer holds. Every array handed out is contiguous and read-only, so that a
kernel is compiled once per type; nobody may write into the memory behind a Series.

The way back hands the arrays over: a Series made by `series_from` shares their memory, and whoever made
them must not change them afterwards.

Cost: 1-5 µs per column without nulls and 10-20 µs with nulls, whatever the number of rows, except for
booleans and validity (unpacked from bits, 0.1 ns per row), decimals (split in limbs) and strings (3 ns
per row for where Polars has their bytes, 12 ns to put these in a row).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from squill.engine.kernels.gather import rows_by_place, words_at, words_to
from squill.engine.kernels.views import view_ranges
from squill.engine.large_arrays import large_array
from squill.engine.quick_series import quick_series, taken_rows
from squill.engine.text_buffers import TextBuffers

__all__ = [
    "all_valid",
    "as_float64",
    "as_int64",
    "byte_ranges_of",
    "bytes_of",
    "decimal_limbs",
    "fixed_width",
    "framed",
    "has_parameters",
    "is_plain",
    "joined",
    "placed",
    "read_only",
    "series_from",
    "series_from_bytes",
    "taken",
    "taken_or_null",
    "valid_of",
    "values_and_valid_of",
    "values_of",
]

Array: TypeAlias = npt.NDArray[Any]
Float64s: TypeAlias = npt.NDArray[np.float64]
Int64s: TypeAlias = npt.NDArray[np.int64]
Uint8s: TypeAlias = npt.NDArray[np.uint8]

_NUMBERS: dict[type[pl.DataType], np.dtype[Any]] = {
    pl.Int8: np.dtype(np.int8),
    pl.Int16: np.dtype(np.int16),
    pl.Int32: np.dtype(np.int32),
    pl.Int64: np.dtype(np.int64),
    pl.UInt8: np.dtype(np.uint8),
    pl.UInt16: np.dtype(np.uint16),
    pl.UInt32: np.dtype(np.uint32),
    pl.UInt64: np.dtype(np.uint64),
    pl.Float16: np.dtype(np.float16),
    pl.Float32: np.dtype(np.float32),
    pl.Float64: np.dtype(np.float64),
}
_PHYSICAL: dict[type[pl.DataType], np.dtype[Any]] = {
    **_NUMBERS,
    pl.Date: np.dtype(np.int32),
    pl.Datetime: np.dtype(np.int64),
    pl.Duration: np.dtype(np.int64),
    pl.Time: np.dtype(np.int64),
    pl.Boolean: np.dtype(np.uint8),
}
_ARROW_TYPES: dict[type[pl.DataType], pa.DataType] = {
    kind: pa.from_numpy_dtype(physical) for kind, physical in _NUMBERS.items()
}
_DATE_NUMBER = pl.Int32()
_TIME_NUMBER = pl.Int64()
_INDEX = pl.UInt32()  # what Polars indexes by; other types it converts first
_FEW = 1024  # up to here Polars' own unpacking of bits beats the way over Arrow, and its gather a kernel
_NEWEST = pl.CompatLevel.newest()
_TEXT = (pl.String, pl.Categorical, pl.Enum)
_INT64 = np.dtype(np.int64)
_UINT8 = np.dtype(np.uint8)
_UINT64 = np.dtype(np.uint64)
_FLOAT64 = np.dtype(np.float64)


def has_parameters(dtype: pl.DataType) -> bool:
    """Return whether two types of this kind may differ; where not, comparing kinds spares Polars' own comparison.

    Examples
    --------
    >>> has_parameters(pl.Datetime("us")), has_parameters(pl.Int64())
    (True, False)
    """
    return dtype.is_nested() or isinstance(dtype, (pl.Datetime, pl.Duration, pl.Decimal, pl.Categorical, pl.Enum))


def read_only(array: Array) -> Array:
    """Return the array as contiguous read-only memory; a view when it is contiguous already.

    Examples
    --------
    >>> read_only(np.arange(6)[::2]).flags.writeable
    False
    """
    if not array.flags.writeable and array.flags.c_contiguous:
        return array
    frozen = array.view() if array.flags.c_contiguous else np.ascontiguousarray(array)
    frozen.flags.writeable = False
    return frozen


def _constant(value: int, size: int) -> Uint8s:
    array = np.full(size, value, dtype=np.uint8)
    array.flags.writeable = False
    return array


# One array of ones for everybody, replaced by a longer one when needed: slices that are out keep the old.
_ones = [_constant(1, 1 << 17)]


def all_valid(size: int) -> Uint8s:
    """Return `size` ones, read-only and shared: the validity of a column without nulls.

    Examples
    --------
    >>> all_valid(3)
    array([1, 1, 1], dtype=uint8)
    """
    ones = _ones[0]
    if size > len(ones):
        ones = _ones[0] = _constant(1, 2 * size)
    return ones[:size]


def _bits(buffer: pa.Buffer | None, offset: int, size: int) -> Uint8s:
    if buffer is None:
        return all_valid(size)
    packed = np.frombuffer(buffer, dtype=_UINT8)
    if offset == 0:
        unpacked = np.unpackbits(packed, count=size, bitorder="little")
    else:
        first, skipped = divmod(offset, 8)
        unpacked = np.unpackbits(packed[first:], count=skipped + size, bitorder="little")[skipped:]
    unpacked.flags.writeable = False
    return unpacked


def _from_buffer(buffer: pa.Buffer, physical: np.dtype[Any], offset: int, size: int) -> Array:
    return np.frombuffer(buffer, dtype=physical, count=size, offset=offset * physical.itemsize)


def _empty(physical: np.dtype[Any]) -> Array:
    return read_only(np.empty(0, dtype=physical))


def _view(series: pl.Series, dtype_class: type[pl.DataType]) -> Array | None:
    """Return the values of a one-chunk column without nulls when Polars gives them as they lie."""
    if dtype_class in _NUMBERS:
        return series.to_numpy(allow_copy=False)
    if dtype_class is pl.Datetime or dtype_class is pl.Duration:
        return series.to_numpy(allow_copy=False).view(_INT64)
    if dtype_class is pl.Date:
        return series.cast(_DATE_NUMBER).to_numpy(allow_copy=False)
    if dtype_class is pl.Time:
        return series.cast(_TIME_NUMBER).to_numpy(allow_copy=False)
    if dtype_class is pl.Boolean and len(series) < _FEW:
        return read_only(series.to_numpy().view(_UINT8))
    return None


def fixed_width(dtype: pl.DataType) -> bool:
    """Say whether columns of this type have physical values for `values_of`."""
    return type(dtype) in _PHYSICAL


def values_of(series: pl.Series) -> Array:
    """Return the physical values of a column, without a copy unless it is Boolean or in several chunks.

    Dates are int32 days, datetimes, durations and times int64 in their own unit, booleans uint8, numbers
    themselves. Where the column is null the value is arbitrary.

    Raises
    ------
    TypeError
        For types without fixed-width values: strings (`bytes_of`), decimals (`decimal_limbs`), nested types.

    Examples
    --------
    >>> values_of(pl.Series([3, None, 5]))[[0, 2]]
    array([3, 5])
    >>> values_of(pl.Series([1, 2]).cast(pl.Date))
    array([1, 2], dtype=int32)
    """
    if series.null_count() == 0 and series.n_chunks() == 1:
        values = _view(series, type(series.dtype))
        if values is not None:
            return values
    return values_and_valid_of(series)[0]


def valid_of(series: pl.Series) -> Uint8s:
    """Return one uint8 per row: 1 where the column has a value, 0 where it is null.

    Without nulls it is a slice of one shared array, so it costs nothing.

    Examples
    --------
    >>> valid_of(pl.Series([3, None, 5]))
    array([1, 0, 1], dtype=uint8)
    """
    if series.null_count() == 0:
        return all_valid(len(series))
    if type(series.dtype) is pl.Null:
        return _constant(0, len(series))
    if isinstance(series.dtype, (pl.Int128, pl.UInt128)):
        # Arrow has no such integers.
        return values_of(series.is_not_null())
    # The newest level exports strings as the views they are; the default would copy their bytes.
    arrow = _arrow(series, _NEWEST)
    return _bits(arrow.buffers()[0], arrow.offset, len(arrow))


def _arrow(series: pl.Series, level: pl.CompatLevel | None = None) -> pa.Array:
    return (series if series.n_chunks() == 1 else series.rechunk()).to_arrow(compat_level=level)


def values_and_valid_of(series: pl.Series) -> tuple[Array, Uint8s]:
    """Return `values_of` and `valid_of` at the price of one of them.

    Examples
    --------
    >>> values_and_valid_of(pl.Series([True, None, False]))[1]
    array([1, 0, 1], dtype=uint8)
    """
    dtype = series.dtype
    dtype_class = type(dtype)
    physical = _PHYSICAL.get(dtype_class)
    if physical is None:
        raise TypeError(f"a column of type {dtype} has no fixed-width physical values")
    if series.null_count() == 0 and series.n_chunks() == 1:
        values = _view(series, dtype_class)
        if values is not None:
            return values, all_valid(len(values))
    size = len(series)
    if size == 0:
        return _empty(physical), all_valid(0)
    arrow = _arrow(series)
    offset = arrow.offset
    validity, data = arrow.buffers()
    valid = _bits(validity, offset, size)
    if dtype_class is pl.Boolean:
        return _bits(data, offset, size), valid
    return _from_buffer(data, physical, offset, size), valid


def as_int64(series: pl.Series) -> tuple[Int64s, Uint8s]:
    """Return an integer, boolean or temporal column as int64 values and validity.

    A UInt64 column comes as its bits: values of 2^63 and above are negative.

    Examples
    --------
    >>> as_int64(pl.Series([7, 8], dtype=pl.Int8))[0]
    array([7, 8])
    """
    values, valid = values_and_valid_of(series)
    if values.dtype == _INT64:
        return values, valid
    if values.dtype.kind == "f":
        raise TypeError(f"a column of type {series.dtype} is not an integer")
    if values.dtype == _UINT64:
        return values.view(_INT64), valid
    return read_only(values.astype(_INT64)), valid


def as_float64(series: pl.Series) -> tuple[Float64s, Uint8s]:
    """Return a number or temporal column as float64 values and validity.

    Integers beyond 2^53 are rounded to the nearest float.

    Examples
    --------
    >>> as_float64(pl.Series([1, 2], dtype=pl.Int16))[0]
    array([1., 2.])
    """
    values, valid = values_and_valid_of(series)
    if values.dtype == _FLOAT64:
        return values, valid
    return read_only(values.astype(_FLOAT64)), valid


def bytes_of(series: pl.Series) -> tuple[Int64s, Uint8s, Uint8s]:
    """Return a text or binary column as (offsets, data, validity).

    Row i is ``data[offsets[i]:offsets[i + 1]]``; a null row has an arbitrary, mostly empty, range.
    Categorical and Enum columns come as their text. ``offsets[0]`` need not be 0.

    Examples
    --------
    >>> offsets, data, valid = bytes_of(pl.Series(["ab", "", None, "c"]))
    >>> offsets.tolist(), bytes(data), valid.tolist()
    ([0, 2, 2, 2, 3], b'abc', [1, 1, 0, 1])
    """
    series = _of_bytes(series)
    size = len(series)
    if size == 0:
        return read_only(np.zeros(1, dtype=_INT64)), all_valid(0), all_valid(0)
    arrow = _arrow(series)
    validity, offsets, data = arrow.buffers()
    content = _empty(_UINT8) if data is None else _from_buffer(data, _UINT8, 0, data.size)
    offset = arrow.offset
    return _from_buffer(offsets, _INT64, offset, size + 1), content, _bits(validity, offset, size)


def _of_bytes(series: pl.Series) -> pl.Series:
    """Return a text or binary column in a type that holds its bytes."""
    dtype = series.dtype
    if type(dtype) in (pl.Categorical, pl.Enum):
        return series.cast(pl.String)
    if type(dtype) not in (pl.String, pl.Binary):
        raise TypeError(f"a column of type {dtype} has no bytes")
    return series


def byte_ranges_of(series: pl.Series) -> tuple[Int64s, Int64s, Uint8s, Uint8s]:
    """Return a text or binary column as (starts, lengths, data, validity), at a quarter of the price of `bytes_of`.

    Row i is ``data[starts[i] : starts[i] + lengths[i]]``; a null row is empty. The bytes stay where Polars has them, in
    several buffers: `data` is the memory from the first of these to the last, of which only the rows may be read.

    Examples
    --------
    >>> starts, lengths, data, valid = byte_ranges_of(pl.Series(["ab", "", None, "longer than a view"]))
    >>> lengths.tolist(), bytes(data[starts[0] : starts[0] + 2]), valid.tolist()
    ([2, 0, 0, 18], b'ab', [1, 1, 0, 1])
    """
    series = _of_bytes(series)
    size = len(series)
    if size == 0:
        return _empty(_INT64), _empty(_INT64), all_valid(0), all_valid(0)
    buffers = TextBuffers(series if series.n_chunks() == 1 else series.rechunk())
    offset, rows = buffers.offset, buffers.offset + size
    validity = buffers.range_at(buffers.validity, -(-rows // 8)) if buffers.validity else None
    valid = _bits(validity, offset, size)
    filled = buffers.sizes > 0  # others may be said to lie anywhere
    begin = int(buffers.data[filled].min(initial=buffers.views))
    end = int((buffers.data[filled] + buffers.sizes[filled]).max(initial=buffers.views + 16 * rows))
    data = _from_buffer(buffers.range_at(begin, end - begin), _UINT8, 0, end - begin)
    views = _from_buffer(buffers.range_at(buffers.views, 16 * rows), _INT64, 2 * offset, 2 * size)
    starts, lengths = large_array(size, np.int64), large_array(size, np.int64)
    first = buffers.views - begin + 16 * offset
    view_ranges(views, valid, first, buffers.data - begin, starts, lengths)
    return read_only(starts), read_only(lengths), data, valid


def decimal_limbs(series: pl.Series) -> tuple[Int64s, Int64s, Uint8s]:
    """Return a Decimal column as (high, low, validity): unscaled value = high * 2^64 + unsigned low.

    `low` holds the low 64 bits in an int64, because Numba turns int64 mixed with uint64 into floats.

    Examples
    --------
    >>> high, low, valid = decimal_limbs(pl.Series(["1.50", "-0.01"]).cast(pl.Decimal(10, 2)))
    >>> high.tolist(), low.tolist()
    ([0, -1], [150, -1])
    """
    if type(series.dtype) is not pl.Decimal:
        raise TypeError(f"a column of type {series.dtype} is not a decimal")
    size = len(series)
    if size == 0:
        return _empty(_INT64), _empty(_INT64), all_valid(0)
    arrow = _arrow(series)
    validity, data = arrow.buffers()
    pairs = _from_buffer(data, _INT64, 2 * arrow.offset, 2 * size)
    return read_only(pairs[1::2]), read_only(pairs[::2]), _bits(validity, arrow.offset, size)


@lru_cache(maxsize=256)
def _arrow_type(dtype: pl.DataType) -> pa.DataType:
    return pl.Series([], dtype=dtype).to_arrow().type


def _packed(bits: Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def series_from(name: str, values: Array | tuple[Int64s, Int64s], valid: Array | None, dtype: pl.DataType) -> pl.Series:
    """Return a Series of `dtype` over physical values as `values_of` gives them, sharing their memory.

    The arrays are handed over and must not change afterwards. Values of another width are converted
    (without a check: the caller knows the range).

    Parameters
    ----------
    name
        The name of the Series.
    values
        Physical values; for a Decimal the pair (high, low) of `decimal_limbs`.
    valid
        1 per row with a value, 0 per null; None when there are no nulls.
    dtype
        Any fixed-width type: numbers, Boolean, Date, Time, Datetime, Duration, Decimal.

    Examples
    --------
    >>> series_from("t", np.array([0, 1]), np.array([1, 0], dtype=np.uint8), pl.Date()).to_list()
    [datetime.date(1970, 1, 1), None]
    """
    dtype_class = type(dtype)
    if isinstance(values, tuple):
        return _decimals_from(name, values, None if valid is None else _packed(valid), dtype)
    size = len(values)
    if dtype_class is pl.Boolean:
        data = _packed(values)
    else:
        physical = _PHYSICAL.get(dtype_class)
        if physical is None:
            raise TypeError(f"a column of type {dtype} cannot be made from fixed-width values")
        values = np.ascontiguousarray(values, dtype=physical)
        if valid is None and (quick := quick_series(name, values, dtype)) is not None:
            return quick
        data = pa.py_buffer(values)
    # Hashing a type runs Python code; most types are all alike.
    arrow_type = _ARROW_TYPES.get(dtype_class) or _arrow_type(dtype)
    validity = None if valid is None else _packed(valid)
    return pl.Series(name, pa.Array.from_buffers(arrow_type, size, [validity, data]))


def _decimals_from(
    name: str, limbs: tuple[Int64s, Int64s], validity: pa.Buffer | None, dtype: pl.DataType
) -> pl.Series:
    if type(dtype) is not pl.Decimal:
        raise TypeError(f"a column of type {dtype} cannot be made from limbs")
    high, low = limbs
    pairs = np.empty((len(high), 2), dtype=_INT64)
    pairs[:, 0] = low
    pairs[:, 1] = high
    return pl.Series(name, pa.Array.from_buffers(_arrow_type(dtype), len(high), [validity, pa.py_buffer(pairs)]))


def series_from_bytes(name: str, offsets: Int64s, data: Array, valid: Array | None, dtype: pl.DataType) -> pl.Series:
    """Return a String, Binary, Categorical or Enum Series over offsets and data as `bytes_of` gives them.

    The bytes of text must be valid UTF-8, as they are when they came from `bytes_of`; they are not checked.

    Examples
    --------
    >>> text = np.frombuffer(b"abc", dtype=np.uint8)
    >>> series_from_bytes("s", np.array([0, 2, 3]), text, None, pl.String()).to_list()
    ['ab', 'c']
    """
    if not isinstance(dtype, (*_TEXT, pl.Binary)):
        raise TypeError(f"a column of type {dtype} cannot be made from bytes")
    validity = None if valid is None else _packed(valid)
    plain = pa.large_binary() if isinstance(dtype, pl.Binary) else pa.large_string()
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets, dtype=_INT64)), pa.py_buffer(data)]
    series = pl.Series(name, pa.Array.from_buffers(plain, len(offsets) - 1, buffers))
    return series.cast(dtype) if isinstance(dtype, (pl.Categorical, pl.Enum)) else series


def taken(columns: Mapping[str, pl.Series], rows: Array) -> dict[str, pl.Series]:
    """Return the given rows of each column.

    Indexing by a Series of Polars' own index type costs a fifth of `Series.gather`, which plans a query.

    Examples
    --------
    >>> taken({"x": pl.Series("x", ["a", "b", "c"])}, np.array([2, 0]))["x"].to_list()
    ['c', 'a']
    """
    if not columns:
        return {}
    rows = rows.astype(np.uint32, copy=False)
    index = series_from("", rows, None, _INDEX)
    has_many = len(rows) > _FEW
    return {
        name: _moved_words(series, rows, words_at) if has_many and is_plain(series) else taken_rows(series, index)
        for name, series in columns.items()
    }


def is_plain(series: pl.Series) -> bool:
    """Say whether a column is machine words in one piece, none of them null."""
    dtype = type(series.dtype)
    return dtype in _PHYSICAL and dtype is not pl.Boolean and series.null_count() == 0 and series.n_chunks() == 1


def _moved_words(series: pl.Series, numbers: Array, move: Callable[[Array, Array, Array], None]) -> pl.Series:
    """Return the rows that the numbers name (`words_at`), or all rows at the places that they are (`words_to`).

    Polars takes twice as long, since it asks of every row whether it is there.
    """
    values = values_of(series)
    word = np.dtype(f"u{values.dtype.itemsize}")
    out = large_array(len(numbers), word)
    move(read_only(values.view(word)), read_only(numbers), out)
    return series_from(series.name, out.view(values.dtype), None, series.dtype)


def placed(columns: Mapping[str, pl.Series], places: Array) -> dict[str, pl.Series]:
    """Return the rows of each column where they are placed; there are as many places, each given once.

    Examples
    --------
    >>> placed({"x": pl.Series("x", ["a", "b", "c"])}, np.array([1, 2, 0], np.uint32))["x"].to_list()
    ['c', 'a', 'b']
    """
    plain = {name for name, series in columns.items() if len(places) > _FEW and is_plain(series)}
    others: dict[str, pl.Series] = {}
    if len(plain) < len(columns):
        rows = large_array(len(places), np.uint32)
        rows_by_place(read_only(places), rows)
        others = taken({name: series for name, series in columns.items() if name not in plain}, rows)
    return {
        name: _moved_words(series, places, words_to) if name in plain else others[name]
        for name, series in columns.items()
    }


def taken_or_null(columns: Mapping[str, pl.Series], rows: Array) -> dict[str, pl.Series]:
    """Return the given rows of each column, nulls for negative ones.

    Examples
    --------
    >>> taken_or_null({"x": pl.Series("x", ["a", "b", "c"])}, np.array([2, -1]))["x"].to_list()
    ['c', None]
    """
    is_there = rows >= 0
    if is_there.all():
        return taken(columns, rows)
    index = series_from("", rows.astype(np.uint32), is_there, _INDEX)
    return {name: taken_rows(series, index) for name, series in columns.items()}


def joined(pieces: Sequence[pl.Series]) -> pl.Series:
    """Return the pieces one after the other, each a chunk; a third of what `pl.concat` costs.

    Examples
    --------
    >>> joined([pl.Series("x", [1]), pl.Series("x", [2, 3])]).to_list()
    [1, 2, 3]
    """
    first, *others = pieces
    if not others:
        return first
    whole = first.clone()
    for piece in others:
        whole.append(piece)
    return whole


def framed(columns: Sequence[pl.Series]) -> pl.DataFrame:
    """Return the columns as a frame; a third of what the constructor costs, which looks at everything it is given.

    Examples
    --------
    >>> framed([pl.Series("x", [1, 2]), pl.Series("y", [3, 4])]).rows()
    [(1, 3), (2, 4)]
    """
    if not columns:
        return pl.DataFrame()
    first, *others = columns
    return first.to_frame().hstack(others)
