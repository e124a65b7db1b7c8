"""A comparison done by Series operators gives what the expression gives."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine.comparisons import Comparison
from squill.plan.expressions import Scope, bind_one
from squill.plan.schema import Schema

FRAME = pl.DataFrame(
    {
        "i": [-(2**63), -1, 0, 2, None, 2**63 - 1],
        "x": [float("-inf"), -0.0, 2.0, float("nan"), None, float("inf")],
        "s": [0, 1, 2, 3, None, 5],
    },
    schema={"i": pl.Int64, "x": pl.Float64, "s": pl.Int8},
)
SCOPE = Scope(Schema(FRAME.schema), None, ends_known=True)
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def comparison_of(expr: pl.Expr) -> Comparison | None:
    return Comparison.of(bind_one(expr, SCOPE, "where"))


@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("i", 2),
        ("i", -(2**63)),
        ("x", 2),
        ("x", 0.0),
        ("x", -1.5),
        ("x", 2**60 + 1),
        ("x", math.inf),
        ("x", -math.inf),
        ("x", math.nan),
    ],
)
def test_comparison_equals_the_expression(compare: Callable[..., Any], name: str, number: float) -> None:
    expr = compare(sq.col(name), number)
    comparison = comparison_of(expr)
    assert comparison is not None
    found = comparison(FRAME.to_dict())
    assert found is not None
    assert repr(found.to_list()) == repr(FRAME.select(expr).to_series().to_list())


@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize(("name", "number"), [("i", 2), ("i", 2**63 - 1), ("x", 2), ("x", 0.0), ("x", 2**60 + 1)])
def test_mask_of_plain_values_equals_the_expression(compare: Callable[..., Any], name: str, number: float) -> None:
    expr = compare(sq.col(name), number)
    comparison = comparison_of(expr)
    assert comparison is not None
    frame = FRAME.filter(sq.col(name).is_not_null() & ~sq.col("x").is_nan())
    found = comparison.mask(frame.to_dict())
    assert found is not None
    assert found.tolist() == frame.select(expr).to_series().to_list()


@pytest.mark.parametrize(
    "rows", [pl.Series([1.0, None]), pl.Series([1.0, float("nan")]), pl.Series([1], dtype=pl.Int8)]
)
def test_mask_leaves_nulls_and_nans_and_other_types_to_polars(rows: pl.Series) -> None:
    comparison = comparison_of(sq.col("x") > 0.5)
    assert comparison is not None
    assert comparison.mask({"x": rows}) is None
    assert comparison.mask({}) is None


def test_plain_numbers_are_compared_without_a_query() -> None:
    assert comparison_of(sq.col("i") < 3) is not None
    assert comparison_of(sq.col("x") >= 0.5) is not None


@pytest.mark.parametrize("expr", [sq.col("i") + 1 < 3, sq.col("i") < sq.col("x"), sq.start() > 3, ~(sq.col("i") > 1)])
def test_other_conditions_are_left_to_polars(expr: pl.Expr) -> None:
    scope = Scope(SCOPE.schema, sq.from_frame({"t": [1]}, start="t").time, ends_known=True)
    comparison = Comparison.of(bind_one(expr, scope, "where"))
    assert comparison is None or comparison(FRAME.to_dict()) is None


def test_small_integers_are_left_to_polars() -> None:
    comparison = comparison_of(sq.col("s") < 3)
    assert comparison is not None
    assert comparison(FRAME.to_dict()) is None
