"""Columns become arrays and arrays become columns, without losing types, nulls or memory."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

from squill.engine.columns import (
    all_valid,
    as_float64,
    as_int64,
    bytes_of,
    decimal_limbs,
    placed,
    read_only,
    series_from,
    series_from_bytes,
    taken,
    valid_of,
    values_and_valid_of,
    values_of,
)

INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]
FIXED = [
    *(dtype() for dtype in INTEGERS),
    pl.Float16(),
    pl.Float32(),
    pl.Float64(),
    pl.Boolean(),
    pl.Date(),
    pl.Time(),
    pl.Datetime("ms"),
    pl.Datetime("us", "UTC"),
    pl.Datetime("ns", "Europe/Zurich"),
    pl.Duration("ms"),
    pl.Duration("ns"),
]


def column(dtype: pl.DataType, *, nulls: bool, size: int = 20) -> pl.Series:
    highest = 2 if dtype == pl.Boolean else 100
    numbers = [None if nulls and i % 3 == 1 else i % highest for i in range(size)]
    return pl.Series("x", numbers, dtype=pl.Int64).cast(dtype)


@pytest.mark.parametrize("dtype", FIXED, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("size", [0, 1, 20, 3000])
def test_arrays_of_a_column_make_the_same_column(dtype: pl.DataType, nulls: bool, size: int) -> None:
    series = column(dtype, nulls=nulls, size=size)
    values, valid = values_and_valid_of(series)
    back = series_from("x", values, valid, dtype)
    assert back.dtype == dtype
    assert back.equals(series, null_equal=True)


@pytest.mark.parametrize("dtype", FIXED, ids=str)
def test_a_slice_with_nulls_starts_at_its_own_first_row(dtype: pl.DataType) -> None:
    part = column(dtype, nulls=True, size=100)[13:61]
    values, valid = values_and_valid_of(part)
    assert valid.tolist() == part.is_not_null().cast(pl.UInt8).to_list()
    assert series_from("x", values, valid, dtype).equals(part, null_equal=True)


@pytest.mark.parametrize("dtype", FIXED, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_several_chunks_give_one_array(dtype: pl.DataType, nulls: bool) -> None:
    series = column(dtype, nulls=nulls)
    chunks = pl.concat([series[:7], series[7:]], rechunk=False)
    assert chunks.n_chunks() == 2
    values, valid = values_and_valid_of(chunks)
    assert values_of(chunks).tolist() == values.tolist()
    assert series_from("x", values, valid, dtype).equals(series, null_equal=True)


@pytest.mark.parametrize("dtype", FIXED, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_arrays_are_contiguous_and_read_only(dtype: pl.DataType, nulls: bool) -> None:
    for array in values_and_valid_of(column(dtype, nulls=nulls)):
        assert array.flags.c_contiguous
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "physical"),
    [
        (pl.Date(), np.int32),
        (pl.Datetime("ms"), np.int64),
        (pl.Duration("us"), np.int64),
        (pl.Time(), np.int64),
        (pl.Boolean(), np.uint8),
        (pl.UInt16(), np.uint16),
        (pl.Float32(), np.float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("nulls", [False, True])
def test_values_have_the_physical_type(dtype: pl.DataType, physical: type, nulls: bool) -> None:
    assert values_of(column(dtype, nulls=nulls)).dtype == physical


def test_large_integers_beside_a_null_stay_exact() -> None:
    series = pl.Series([2**63 - 1, None, -(2**63) + 1])
    assert values_of(series)[[0, 2]].tolist() == [2**63 - 1, -(2**63) + 1]


def test_values_without_nulls_share_the_memory_of_the_series() -> None:
    numbers = np.arange(1000)
    series = pl.Series(numbers)
    assert np.shares_memory(values_of(series), series.to_numpy(allow_copy=False))


def test_a_series_shares_the_memory_of_its_arrays() -> None:
    numbers = np.arange(1000)
    series = series_from("x", numbers, None, pl.Datetime("us"))
    assert np.shares_memory(values_of(series), numbers)


def test_validity_without_nulls_is_one_shared_array() -> None:
    assert np.shares_memory(valid_of(pl.Series([1, 2])), valid_of(pl.Series(["a"])))


def test_validity_of_a_longer_column_than_any_before_is_all_ones() -> None:
    assert all_valid(1 << 19).all()
    assert len(all_valid(1 << 19)) == 1 << 19


@pytest.mark.parametrize(
    "series",
    [
        pl.Series(["a", None, "a string of more than twelve bytes"]),
        pl.Series([b"a", None, b""]),
        pl.Series([[1], None, []]),
        pl.Series(["a", None, "b"]).cast(pl.Categorical),
        pl.Series([Decimal(1), None, Decimal(2)]),
    ],
    ids=lambda series: str(series.dtype),
)
def test_validity_is_known_for_any_type(series: pl.Series) -> None:
    assert valid_of(series).tolist() == [1, 0, 1]


def test_a_column_of_type_null_is_nowhere_valid() -> None:
    assert valid_of(pl.Series([None, None])).tolist() == [0, 0]


def test_values_of_strings_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="String"):
        values_of(pl.Series(["a"]))


def test_narrow_integers_widen_to_int64() -> None:
    values, valid = as_int64(pl.Series([1, None, -3], dtype=pl.Int8))
    assert values.dtype == np.int64
    assert values[[0, 2]].tolist() == [1, -3]
    assert valid.tolist() == [1, 0, 1]


def test_large_unsigned_integers_come_as_bits() -> None:
    assert as_int64(pl.Series([2**64 - 1], dtype=pl.UInt64))[0].tolist() == [-1]


def test_floats_are_no_integers() -> None:
    with pytest.raises(TypeError, match="Float64"):
        as_int64(pl.Series([1.5]))


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt64, pl.Float32, pl.Float64])
def test_numbers_widen_to_float64(dtype: type[pl.DataType]) -> None:
    values, valid = as_float64(pl.Series([1, None, 3], dtype=dtype))
    assert values.dtype == np.float64
    assert values[[0, 2]].tolist() == [1.0, 3.0]
    assert valid.tolist() == [1, 0, 1]


def rows_of(series: pl.Series) -> list[bytes | None]:
    offsets, data, valid = bytes_of(series)
    ranges = zip(offsets[:-1], offsets[1:], valid, strict=True)
    return [bytes(data[start:end]) if is_valid else None for start, end, is_valid in ranges]


@pytest.mark.parametrize("dtype", [pl.String(), pl.Categorical(), pl.Enum(["", "é", "word", "a\0b"])], ids=str)
def test_text_of_any_type_comes_as_utf8(dtype: pl.DataType) -> None:
    series = pl.Series(["é", None, "", "word", "a\0b"]).cast(dtype)
    assert rows_of(series) == ["é".encode(), None, b"", b"word", b"a\0b"]


def test_a_slice_of_strings_has_its_own_rows() -> None:
    series = pl.Series([f"row number {i}" for i in range(100)])
    assert rows_of(series[10:12]) == [b"row number 10", b"row number 11"]


def test_no_strings_have_one_offset() -> None:
    offsets, data, valid = bytes_of(pl.Series([], dtype=pl.String))
    assert (offsets.tolist(), len(data), len(valid)) == ([0], 0, 0)


def test_bytes_of_numbers_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="Int64"):
        bytes_of(pl.Series([1]))


@pytest.mark.parametrize("dtype", [pl.String(), pl.Categorical(), pl.Enum(["a", "bb"])], ids=str)
def test_bytes_of_text_make_the_same_column(dtype: pl.DataType) -> None:
    series = pl.Series("x", ["a", None, "bb"]).cast(dtype)
    back = series_from_bytes("x", *bytes_of(series), dtype)
    assert back.dtype == dtype
    assert back.to_list() == ["a", None, "bb"]


def test_bytes_of_binary_make_the_same_column() -> None:
    series = pl.Series("x", [b"\0\xff", None, b""])
    assert series_from_bytes("x", *bytes_of(series), pl.Binary()).equals(series, null_equal=True)


DECIMALS = [Decimal("0.00"), Decimal("-0.01"), None, Decimal(10) ** 30, -(Decimal(10) ** 30), Decimal("1.50")]


@pytest.mark.parametrize("start", [0, 2])
def test_limbs_of_decimals_make_the_same_column(start: int) -> None:
    series = pl.Series("x", DECIMALS, dtype=pl.Decimal(38, 2))[start:]
    high, low, valid = decimal_limbs(series)
    assert series_from("x", (high, low), valid, series.dtype).equals(series, null_equal=True)


def test_limbs_are_the_unscaled_value() -> None:
    high, low, valid = decimal_limbs(pl.Series(DECIMALS, dtype=pl.Decimal(38, 2)))
    values = [
        int(h) * 2**64 + int(unsigned) if is_valid else None
        for h, unsigned, is_valid in zip(high, low.view(np.uint64), valid, strict=True)
    ]
    assert values == [0, -1, None, 10**32, -(10**32), 150]


def test_no_decimals_have_no_limbs() -> None:
    assert [len(array) for array in decimal_limbs(pl.Series([], dtype=pl.Decimal(10, 2)))] == [0, 0, 0]


def test_limbs_of_floats_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="Float64"):
        decimal_limbs(pl.Series([1.0]))


def test_values_of_another_width_are_converted() -> None:
    days = series_from("d", np.array([0, 1]), None, pl.Date())
    assert days.to_list() == [dt.date(1970, 1, 1), dt.date(1970, 1, 2)]


def test_a_nested_column_cannot_be_made_from_values() -> None:
    with pytest.raises(TypeError, match="List"):
        series_from("x", np.array([1]), None, pl.List(pl.Int64))


def test_only_decimals_are_made_from_limbs() -> None:
    limbs = np.array([0]), np.array([1])
    with pytest.raises(TypeError, match="Int64"):
        series_from("x", limbs, None, pl.Int64())


def test_only_text_and_binary_are_made_from_bytes() -> None:
    with pytest.raises(TypeError, match="Int64"):
        series_from_bytes("x", np.array([0, 1]), np.zeros(1, dtype=np.uint8), None, pl.Int64())


def test_freezing_leaves_the_original_writable() -> None:
    array = np.arange(3)
    assert not read_only(array).flags.writeable
    assert array.flags.writeable


def test_freezing_makes_strided_arrays_contiguous() -> None:
    assert read_only(np.arange(10)[::2]).flags.c_contiguous


def of_every_type() -> dict[str, pl.Series]:
    numbers = pl.Series(np.arange(5_000) % 97)
    columns = {
        "int8": numbers.cast(pl.Int8),
        "uint16": numbers.cast(pl.UInt16),
        "float32": numbers.cast(pl.Float32),
        "float": numbers.cast(pl.Float64) / 3,
        "date": numbers.cast(pl.Date),
        "instant": numbers.cast(pl.Datetime("ms", "UTC")),
        "flag": numbers % 2 == 0,
        "decimal": numbers.cast(pl.Decimal(10, 2)),
        "text": numbers.cast(pl.String),
        "gaps": numbers.replace({5: None}),
        "pieces": pl.concat([numbers[:2_000], numbers[2_000:]], rechunk=False),
    }
    return {name: series.alias(name) for name, series in columns.items()}


@pytest.mark.parametrize("kind", [np.uint32, np.int64])
def test_many_rows_are_taken_of_columns_of_every_type(kind: type[np.integer[Any]]) -> None:
    columns = of_every_type()
    rows = np.random.default_rng(1).integers(0, 5_000, 3_000).astype(kind)
    found = taken(columns, rows)
    for name, series in columns.items():
        assert_series_equal(found[name], series.gather(rows))


@pytest.mark.parametrize("size", [0, 1, 100, 5_000])
def test_rows_of_columns_of_every_type_are_placed(size: int) -> None:
    columns = {name: series.head(size) for name, series in of_every_type().items()}
    rows = np.random.default_rng(size).permutation(size)
    places = np.empty(size, np.uint32)
    places[rows] = np.arange(size)
    found = placed(columns, places)
    assert list(found) == list(columns)
    for name, series in columns.items():
        assert_series_equal(found[name], series.gather(rows))
