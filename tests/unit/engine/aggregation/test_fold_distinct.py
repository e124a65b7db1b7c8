from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

import squill as sq
from tests.unit.engine.aggregation.snapshots import agrees, histories, order, value_at_end

quick = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.mark.parametrize("name", ["n", "x", "s"])
@quick
@given(history=histories())
def test_count_distinct(name: str, history: Any) -> None:
    def model(alive: list[Any]) -> int:
        return len({order(row[name]) for row in alive if row[name] is not None})

    agrees(sq.count_distinct(name), model, history)


@pytest.mark.parametrize(
    ("values", "dtype", "count"),
    [
        ([0.0, -0.0, math.nan, math.nan, None], pl.Float64, 2),
        ([[1], [1], [2], None], pl.List(pl.Int64), 2),
        ([Decimal("1.5"), Decimal("1.5")], pl.Decimal(10, 1), 1),
        ([2**100, 2**100, 1], pl.Int128, 2),
        ([None, None], pl.Null, 0),
        ([None, None], pl.String, 0),
    ],
)
def test_values_of_every_type(values: list[Any], dtype: Any, count: int) -> None:
    assert value_at_end(sq.count_distinct("x"), values, dtype) == count
