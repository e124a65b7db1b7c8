from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

import squill as sq
from squill.errors import NumericOverflowError
from tests.unit.engine.aggregation.snapshots import Row, agrees, histories, value_at_end

quick = settings(max_examples=60, deadline=None, derandomize=True)


def product(alive: list[Row], name: str) -> Any:
    values = [row[name] for row in alive if row[name] is not None]
    return math.prod(values) if values else None


@quick
@given(history=histories())
def test_products_follow_the_rows(history: Any) -> None:
    agrees(sq.product("n"), lambda alive: product(alive, "n"), history)
    agrees(sq.product("x"), lambda alive: product(alive, "x"), history)


def test_a_passing_product_may_be_of_any_size() -> None:
    huge = [10**18] * 20
    assert value_at_end(sq.product("x"), [0, *huge], pl.Int64) == 0
    frame = pl.DataFrame({"t": [1] * 21, "u": [2] * 20 + [3], "x": [*huge, 7]})
    with pytest.raises(NumericOverflowError, match="the product leaves the 64-bit range at time 1"):
        sq.from_frame(frame, start="t", end="u").aggregate(v=sq.product("x")).collect()
    zeroed = pl.concat([frame, pl.DataFrame({"t": [1], "u": [2], "x": [0]})])
    answer = sq.from_frame(zeroed, start="t", end="u").aggregate(v=sq.product("x")).collect()
    assert answer["v"].to_list() == [0, 7]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-(2**62), 2], -(2**63)),
        ([2**63 - 1, -1], -(2**63 - 1)),
        ([3037000499, 3037000499], 3037000499**2),
        ([7] * 22, 7**22),
        ([-(2**63)], -(2**63)),
    ],
)
def test_integer_products_are_exact_to_the_last_bit(values: list[int], expected: int) -> None:
    assert value_at_end(sq.product("x"), values, pl.Int64) == expected


@pytest.mark.parametrize("values", [[2**62, 2], [-(2**62), 2, -1], [3037000500, 3037000500], [7] * 23])
def test_the_first_product_that_does_not_fit_is_refused(values: list[int]) -> None:
    with pytest.raises(NumericOverflowError):
        value_at_end(sq.product("x"), values, pl.Int64)


def test_unsigned_and_boolean_products() -> None:
    assert value_at_end(sq.product("x"), [2**63 - 1, 1], pl.UInt64) == 2**63 - 1
    assert value_at_end(sq.product("x"), [True, False], pl.Boolean) == 0
    with pytest.raises(NumericOverflowError):
        value_at_end(sq.product("x"), [2**64 - 1], pl.UInt64)


def test_float_products_leave_and_enter_the_range() -> None:
    assert value_at_end(sq.product("x"), [1e300, 1e300, 1e-300], pl.Float64) == pytest.approx(1e300)
    assert value_at_end(sq.product("x"), [1e300, 1e300], pl.Float64) == math.inf
    assert value_at_end(sq.product("x"), [1e300, 1e300, -2.0], pl.Float64, leave=2) == -2.0
    assert value_at_end(sq.product("x"), [5e-324, 0.5, 4.0], pl.Float64) == 1e-323


def test_special_values_leave_with_their_rows() -> None:
    assert value_at_end(sq.product("x"), [math.nan, math.inf, -3.0], pl.Float64, leave=2) == -3.0
    assert math.isnan(value_at_end(sq.product("x"), [math.inf, 0.0], pl.Float64))
    assert value_at_end(sq.product("x"), [None], pl.Float64) is None
    assert value_at_end(sq.product("x"), [None], pl.Null) is None
