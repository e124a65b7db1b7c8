"""Columns made quickly: the same as the public constructors make, and still made where those calls are gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

from squill.engine import quick_series as quick
from squill.engine.columns import series_from, taken, taken_or_null
from squill.engine.quick_series import quick_series, taken_rows

TYPES: tuple[pl.DataType, ...] = (
    pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64(),
    pl.Float16(), pl.Float32(), pl.Float64(), pl.Date(), pl.Time(), pl.Duration("ms"), pl.Datetime("ns"),
    pl.Datetime("us", "Europe/Berlin"), pl.Boolean(),
)  # fmt: skip


@pytest.fixture(params=["as installed", "calls gone"])
def polars(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "calls gone":
        monkeypatch.setattr(quick, "_makers", {})


def test_this_version_of_polars_has_the_calls() -> None:
    assert len(quick._makers) == 10


@pytest.mark.usefixtures("polars")
@pytest.mark.parametrize("size", [0, 1, 100_000])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values_of_every_type(dtype: pl.DataType, size: int) -> None:
    numbers = np.arange(size) % 2
    made = series_from("x", numbers, None, dtype)
    expected = pl.Series("x", numbers, dtype=pl.Int64)
    assert_series_equal(made, expected.cast(pl.Int32).cast(dtype) if dtype == pl.Date else expected.cast(dtype))
    assert made.n_chunks() == 1


@pytest.mark.usefixtures("polars")
def test_not_a_number_is_no_null_and_nulls_are() -> None:
    assert series_from("x", np.array([np.nan, 1.0]), None, pl.Float64()).null_count() == 0
    assert series_from("x", np.array([2, 1]), np.array([0, 1], np.uint8), pl.Int64()).to_list() == [None, 1]


def test_the_memory_is_shared() -> None:
    values = np.array([1, 2, 3])
    made = quick_series("x", values, pl.Int64())
    assert made is not None
    assert np.shares_memory(made.to_numpy(), values)


@pytest.mark.usefixtures("polars")
@pytest.mark.parametrize(
    "column", [["a", "b", None], [1.5, None, 2.5], [[1], [], None], [{"x": 1}, {"x": 2}, None]], ids=str
)
def test_rows_are_taken_from_every_kind_of_column(column: list[Any]) -> None:
    series = pl.Series("c", column)
    again = pl.Series("c", [column[2], column[0], column[0]])
    assert_series_equal(taken({"c": series}, np.array([2, 0, 0]))["c"], again)
    assert taken_or_null({"c": series}, np.array([-1, 1]))["c"].to_list() == [None, column[1]]


@pytest.mark.usefixtures("polars")
def test_a_row_that_is_not_there() -> None:
    with pytest.raises(pl.exceptions.OutOfBoundsError):
        taken_rows(pl.Series([1, 2]), pl.Series([2], dtype=pl.UInt32))


@pytest.mark.parametrize("broken", [lambda *_: 1 / 0, lambda *_: None, lambda *_: pl.Series([1])._s])
def test_calls_that_answer_otherwise_are_not_used(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_makers", {np.dtype(kind): broken for kind in ("int64", "float64", "uint32")})
    assert not quick._answer_rightly()
