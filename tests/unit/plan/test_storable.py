from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
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


@pytest.mark.parametrize(
    ("dtype", "file_format", "lack"),
    [
        (pl.Struct({}), "parquet", "parquet has no structs without fields"),
        (pl.Struct({"a": pl.List(pl.Struct({}))}), "parquet", "parquet has no structs without fields"),
        (pl.Array(pl.Int64, 0), "parquet", "arrays of no values are not read back"),
        (pl.List(pl.Array(pl.Int64, 0)), "ipc", "arrays of no values are not read back"),
    ],
    ids=str,
)
def test_what_is_not_read_back_is_not_written(tmp_path: Path, dtype: pl.DataType, file_format: str, lack: str) -> None:
    frame = pl.DataFrame({"x": pl.Series([None], dtype=dtype)})
    with pytest.raises(PlanError, match=lack):
        getattr(sq.from_frame(frame), f"to_{file_format}")(tmp_path / "a")
    with sq.local(2) as cluster, pytest.raises(PlanError, match=lack):
        cluster.from_frame(frame).to_storage(tmp_path / "a", format=file_format)
    assert not list(tmp_path.iterdir())


def test_structs_without_fields_are_read_back_from_arrow_files(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": pl.Series([{}, {}], dtype=pl.Struct({}))})
    with sq.local(2) as cluster:
        cluster.from_frame(frame).to_storage(tmp_path / "a", format="ipc")
    assert sq.scan(tmp_path / "a").collect().equals(frame)
