from __future__ import annotations

import polars as pl
import pytest

from squill.plan.storable import storable, storable_type

COLUMNS = [
    pl.Series([2**127 - 1, None, -(2**127)], dtype=pl.Int128),
    pl.Series([{"a": [2**100, None], "b": "x"}, None], dtype=pl.Struct({"a": pl.List(pl.UInt128), "b": pl.String})),
    pl.Series([[[1, 2]], None], dtype=pl.List(pl.Array(pl.Int128, 2))),
]


@pytest.mark.parametrize("series", COLUMNS, ids=[str(series.dtype) for series in COLUMNS])
def test_a_cast_brings_the_column_back(series: pl.Series) -> None:
    stored = storable(series)
    assert "128" not in str(stored.dtype)
    assert stored.cast(series.dtype).equals(series, null_equal=True)


@pytest.mark.parametrize(
    "dtype", [pl.Int64(), pl.Decimal(38, 2), pl.List(pl.Categorical()), pl.Struct({"a": pl.Enum(["x"])})]
)
def test_what_arrow_holds_stays(dtype: pl.DataType) -> None:
    series = pl.Series([], dtype=dtype)
    assert storable_type(dtype) == dtype
    assert storable(series) is series
