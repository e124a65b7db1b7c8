"""Merged columns of every kind of type, with and without nulls, of two runs and of more."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

from squill.engine.batch import Batch
from squill.exchange.merge import merge_runs

COLUMNS = {
    "int8": pl.Series([1, 2, 3, 4], dtype=pl.Int8),
    "uint64": pl.Series([2**64 - 1, 0, 5, 7], dtype=pl.UInt64),
    "float32": pl.Series([0.5, -0.0, float("nan"), 4.0], dtype=pl.Float32),
    "boolean": pl.Series([True, False, False, True]),
    "date": pl.Series([date(1969, 1, 1), date(2024, 2, 29), date(1970, 1, 1), date(1, 1, 1)]),
    "time": pl.Series([time(1), time(2), time(3), time(23, 59)]),
    "datetime": pl.Series([datetime(2020, 1, day) for day in (1, 2, 3, 4)]).dt.replace_time_zone("Europe/Berlin"),
    "duration": pl.Series([timedelta(days=n) for n in (1, -2, 3, 4)]),
    "decimal": pl.Series([Decimal("1.5"), Decimal("-2.25"), Decimal(3), Decimal(4)], dtype=pl.Decimal(10, 2)),
    "string": pl.Series(["a", "", "a longer text than twelve bytes", "d"]),
    "list": pl.Series([[1], [], [2, 3], [4]]),
    "category": pl.Series(["x", "y", "x", "z"], dtype=pl.Categorical()),
}


def batch(times: list[int], name: str, values: pl.Series) -> Batch:
    return Batch(np.array(times), np.array(times) + 10, {name: values.alias(name)})


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize("runs", [2, 3])
def test_values_go_along_with_their_times(name: str, has_nulls: bool, runs: int) -> None:
    values = COLUMNS[name]
    if has_nulls:
        values = pl.concat([values[:1], pl.Series([None], dtype=values.dtype), values[2:]])
    times = [[1, 5, 5, 9], [0, 5, 6, 6], [2, 5, 8, 9]][:runs]
    given = [batch(times[0], name, values), batch(times[1], name, values.reverse()), batch([2, 5, 8, 9], name, values)]
    merged = list(merge_runs([[run] for run in given[:runs]]))
    order = sorted((t, number, place) for number, run in enumerate(times) for place, t in enumerate(run))
    expected = pl.concat([given[number].columns[name].slice(place, 1) for _, number, place in order])
    found = pl.concat([piece.columns[name] for piece in merged])
    assert np.concatenate([piece.sync for piece in merged]).tolist() == [t for t, _, _ in order]
    assert np.concatenate([piece.other for piece in merged]).tolist() == [t + 10 for t, _, _ in order]
    assert_series_equal(found, expected)
