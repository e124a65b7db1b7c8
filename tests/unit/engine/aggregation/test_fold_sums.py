from __future__ import annotations

import datetime as dt
import math
import statistics
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import NumericOverflowError, SquillError
from tests.unit.engine.aggregation.snapshots import Row, agrees, histories, value_at_end

quick = settings(max_examples=60, deadline=None, derandomize=True)
MONEY = pl.Decimal(38, 2)


def numbers(alive: list[Row]) -> list[int]:
    return [row["n"] for row in alive if row["n"] is not None]


@quick
@given(history=histories())
def test_sums_follow_the_rows(history: Any) -> None:
    agrees(sq.sum("n"), lambda alive: sum(numbers(alive)), history)
    agrees(sq.count_not_null("s"), lambda alive: sum(row["s"] is not None for row in alive), history)


@quick
@given(history=histories())
def test_means_and_variances_follow_the_rows(history: Any) -> None:
    agrees(sq.mean("n"), lambda alive: statistics.mean(map(float, numbers(alive))) if numbers(alive) else None, history)
    agrees(
        sq.var("n", ddof=0),
        lambda alive: float(statistics.pvariance(map(Fraction, numbers(alive)))) if numbers(alive) else None,
        history,
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(-(10**37), 10**37), min_size=1, max_size=8), st.integers(0, 7))
def test_decimal_sums_are_exact(units: list[int], leave: int) -> None:
    with localcontext(prec=60):
        values = [Decimal(unit).scaleb(-2) for unit in units]
    left = units[leave:] if leave < len(units) else units
    gone = leave if leave < len(units) else 0
    with localcontext(prec=60):
        assert value_at_end(sq.sum("x"), values, MONEY, leave=gone) == Decimal(sum(left)).scaleb(-2)


def test_a_decimal_sum_of_39_digits_is_refused() -> None:
    most = Decimal("9" * 36 + ".99")
    least = most.copy_negate()
    assert value_at_end(sq.sum("x"), [most, least, least], MONEY) == least
    with pytest.raises(NumericOverflowError, match="more than 38 digits"):
        value_at_end(sq.sum("x"), [most, Decimal("0.01")], MONEY)
    with pytest.raises(NumericOverflowError, match="more than 38 digits"):
        value_at_end(sq.sum("x"), [least, Decimal("-0.01")], MONEY)


def test_means_of_decimals() -> None:
    prices = [Decimal("1.00"), Decimal("2.00"), None, Decimal("4.50")]
    assert value_at_end(sq.mean("x"), prices, MONEY) == 2.5
    assert value_at_end(sq.var("x"), prices, MONEY) == pytest.approx(3.25)
    assert value_at_end(sq.std("x"), prices, MONEY) == pytest.approx(math.sqrt(3.25))


@pytest.mark.parametrize(("dtype", "shift"), [(pl.Int64, 2**62), (pl.Int64, -(2**62)), (pl.UInt64, 2**63)])
def test_integers_beyond_float_precision(dtype: Any, shift: int) -> None:
    values = [shift + i for i in (1, 2, 6)]
    assert value_at_end(sq.mean("x"), values, dtype) == float(shift + 3)
    apart = [shift + i * 10**9 for i in (1, 2, 6)]
    assert value_at_end(sq.var("x"), apart, dtype) == pytest.approx(7e18, rel=1e-9)


def test_a_sum_beyond_the_range_comes_back() -> None:
    assert value_at_end(sq.sum("x"), [1.7e308, 1.7e308], pl.Float64) == math.inf
    assert value_at_end(sq.sum("x"), [1.7e308, 1.7e308, 3.0], pl.Float64, leave=2) == 3.0
    assert value_at_end(sq.mean("x"), [1.7e308, 1.7e308], pl.Float64) == 1.7e308
    assert value_at_end(sq.var("x"), [1e300, 5.0, 7.0], pl.Float64, leave=1) == 2.0


def test_a_column_without_a_type_adds_to_zero() -> None:
    assert value_at_end(sq.sum("x"), [None, None], pl.Null) == 0
    assert value_at_end(sq.mean("x"), [None, None], pl.Null) is None
    assert value_at_end(sq.count_not_null("x"), [None, None], pl.Null) == 0


@pytest.mark.parametrize(
    "aggregate",
    [
        sq.sum(sq.col("x") * 10),
        sq.product("x"),
        sq.sum(sq.col("x").cast(pl.Decimal(38, 20))),
        sq.aggregate_fn(
            ["x"],
            init=lambda: (0,),
            accumulate=lambda state, t, x: (state[0] + 1,),
            deaccumulate=lambda state, t, x: (state[0] - 1,),
            result=lambda state: 1 // (state[0] - 2),
            dtype=pl.Int64,
        ),
    ],
    ids=["sum", "product", "decimal", "user"],
)
def test_an_error_says_the_time_as_people_write_it(aggregate: Any) -> None:
    hours = [dt.datetime(2026, 1, 1, hour) for hour in (1, 2)]
    frame = pl.DataFrame({"t": hours, "x": [9 * 10**17, 9 * 10**17]})
    source = sq.from_frame(frame, start="t").with_duration("5h")
    with pytest.raises(SquillError, match="at time 2026-01-01 02:00:00"):
        source.aggregate(v=aggregate).collect()
    with pytest.raises(SquillError) as failure:
        sq.from_frame(frame.drop("t")).aggregate(v=aggregate).collect()
    assert "at time" not in str(failure.value), "these rows have no time"
