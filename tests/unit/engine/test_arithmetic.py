"""Arithmetic done by Series operators gives what the expression gives."""

from __future__ import annotations

import operator

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from squill.engine.arithmetic import Arithmetic
from squill.plan.expressions import Scope, bind_one
from squill.plan.schema import Schema

FRAME = pl.DataFrame(
    {
        "i": [-(2**63), -1, 0, 2, None, 2**63 - 1],
        "j": [3, None, 0, -7, 1, 2**62 + 1],
        "x": [float("-inf"), -0.0, 2.0, float("nan"), None, float("inf")],
        "y": [0.1, 0.0, None, 1e308, 5.0, float("inf")],
        "s": [0, 1, 2, 3, None, 5],
    },
    schema={"i": pl.Int64, "j": pl.Int64, "x": pl.Float64, "y": pl.Float64, "s": pl.Int8},
)
SCOPE = Scope(Schema(FRAME.schema), None, ends_known=True)
OPERATE = [operator.add, operator.sub, operator.mul, operator.truediv]

columns = st.sampled_from([pl.col("i"), pl.col("j"), pl.col("x"), pl.col("y")])
numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
expressions = st.recursive(
    columns,
    lambda inner: st.one_of(
        st.builds(lambda act, one, other: act(one, other), st.sampled_from(OPERATE), inner, inner),
        st.builds(lambda act, one, other: act(one, other), st.sampled_from(OPERATE), inner, numbers),
        st.builds(lambda act, one, other: act(other, one), st.sampled_from(OPERATE), inner, numbers),
    ),
    max_leaves=5,
)


def arithmetic_of(expr: pl.Expr) -> Arithmetic | None:
    return Arithmetic.of(bind_one(expr.alias("z"), SCOPE, "select"))


@given(expressions, st.integers(0, FRAME.height), st.integers(0, FRAME.height))
def test_arithmetic_gives_what_polars_gives(expr: pl.Expr, first: int, size: int) -> None:
    frame = FRAME.slice(first, size)
    quick = arithmetic_of(expr)
    if quick is None:
        return  # a column as it is
    value = quick(frame.to_dict())
    assert value is not None
    assert_series_equal(value.alias("z"), frame.select(z=expr).to_series(), check_exact=True)


@pytest.mark.parametrize(
    "expr",
    [
        pl.col("i") // 2,
        pl.col("i") % 2,
        pl.col("i").abs() + 1,
        pl.col("x").sqrt() / pl.col("y"),
        pl.lit(1) + 2 + pl.col("i"),
        pl.col("i") > 1,
        pl.col("i") + pl.lit(1, dtype=pl.Int8),
    ],
    ids=str,
)
def test_other_expressions_are_left_to_polars(expr: pl.Expr) -> None:
    assert arithmetic_of(expr) is None


def test_other_types_are_left_to_polars() -> None:
    quick = arithmetic_of(pl.col("s") + 1)
    assert quick is not None
    assert quick(FRAME.to_dict()) is None
