"""The reference follows the worked statements on aggregates, groups and relational data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import NumericOverflowError, UserFunctionError
from squill.plan.aggregates import AggregateExpr
from squill.testing import Row, reference

NAN, INF = math.nan, math.inf


def value(aggregate: AggregateExpr, values: Sequence[Any], dtype: Any = None) -> Any:
    """Return the aggregate of simultaneous events."""
    frame = pl.DataFrame({"t": [1] * len(values), "x": pl.Series(values, dtype=dtype)})
    (row,) = reference.run(sq.from_frame(frame, start="t").aggregate(a=aggregate))
    return row.payload["a"]


VALUES: dict[str, tuple[AggregateExpr, list[Any], Any]] = {
    "count counts nulls": (sq.count(), [1, None], 2),
    "count_not_null skips them": (sq.count_not_null("x"), [1, None], 1),
    "count_not_null of nulls": (sq.count_not_null("x"), [None, None], 0),
    "sum of integers": (sq.sum("x"), [1, None, 5], 6),
    "sum of Booleans": (sq.sum("x"), [True, False, True], 2),
    "sum of nulls": (sq.sum("x"), [None], 0),
    "sum of floats": (sq.sum("x"), [0.1] * 10, 1.0),
    "sum with an infinity": (sq.sum("x"), [1.0, INF], INF),
    "mean": (sq.mean("x"), [1, 2, None], 1.5),
    "mean of nulls": (sq.mean("x"), [None], None),
    "var of one": (sq.var("x"), [3], None),
    "var of one, ddof 0": (sq.var("x", 0), [3], 0.0),
    "var": (sq.var("x"), [1, 3], 2.0),
    "std": (sq.std("x", 0), [1, 3], 1.0),
    "min": (sq.min("x"), ["b", None, "a"], "a"),
    "max of nulls": (sq.max("x"), [None, None], None),
    "min with a NaN": (sq.min("x"), [NAN, 1.0], 1.0),
    "first skips nulls": (sq.first("x"), [3, None, 2], 2),
    "last": (sq.last("x"), [3, None, 2], 3),
    "collect_list keeps nulls first": (sq.collect_list("x"), [3, None, 2], [None, 2, 3]),
    "collect_list by another order": (sq.collect_list("x", order_by=-sq.col("x")), [1, 2, 3], [3, 2, 1]),
    "count_distinct": (sq.count_distinct("x"), [1.0, NAN, NAN, None, 0.0, -0.0], 3),
    "product": (sq.product("x"), [2, -3, None], -6),
    "product of nothing": (sq.product("x"), [None], None),
    "product with a zero": (sq.product("x"), [2.0, 0.0], 0.0),
    "product beyond floats": (sq.product("x"), [1e300, -1e300, 1e-300], pytest.approx(-1e300)),
    "percentile between values": (sq.percentile("x", 0.6), [10, 20], 16.0),
    "percentile of nothing": (sq.percentile("x", 0.5), [None], None),
    "discrete percentile": (sq.percentile("x", 0.5, discrete=True), [4, 1, 3, 2], 2),
    "discrete percentile at 0": (sq.percentile("x", 0, discrete=True), [4, 1], 1),
    "where leaves the snapshot alive": (sq.count(where=sq.col("x") > 9), [1, 2], 0),
    "arithmetic": (sq.sum("x") / sq.count(), [1, 2], 1.5),
}


@pytest.mark.parametrize("name", VALUES)
def test_aggregate(name: str) -> None:
    aggregate, values, expected = VALUES[name]
    assert value(aggregate, values) == expected


@pytest.mark.parametrize("aggregate", [sq.sum, sq.mean, sq.max, sq.product, sq.var])
def test_nan_shows_while_it_is_alive(aggregate: Callable[[str], AggregateExpr]) -> None:
    assert math.isnan(value(aggregate("x"), [1.0, NAN]))


def test_infinities_of_both_signs_give_nan() -> None:
    assert math.isnan(value(sq.sum("x"), [INF, -INF]))


def test_top_k_has_ranks_with_gaps_and_keeps_ties_of_the_last_place() -> None:
    ranked = value(sq.top_k("x", 2), [5, 9, 9, 5, 1])
    assert ranked == [{"rank": 1, "x": 9}, {"rank": 1, "x": 9}]
    ranked = value(sq.top_k("x", 3), [5, 9, 9, 5, 1])
    assert [(item["rank"], item["x"]) for item in ranked] == [(1, 9), (1, 9), (3, 5), (3, 5)]


def test_top_k_orders_ties_by_payload_and_leaves_nulls_out() -> None:
    frame = pl.DataFrame({"t": [1, 1, 1], "s": ["b", "a", "c"], "x": [1, 1, None]})
    (row,) = reference.run(sq.from_frame(frame, start="t").aggregate(a=sq.top_k("x", 1, descending=False)))
    assert row.payload["a"] == [{"rank": 1, "s": "a", "x": 1}, {"rank": 1, "s": "b", "x": 1}]


def test_sum_overflows_only_where_a_snapshot_does() -> None:
    frame = pl.DataFrame({"t": [1, 2], "u": [2, 3], "x": [2**63 - 1, 2**63 - 1]})
    stream = sq.from_frame(frame, start="t", end="u")
    assert [row.payload["x"] for row in reference.run(stream.sum("x"))] == [2**63 - 1] * 2
    with pytest.raises(NumericOverflowError, match="does not fit Int64"):
        reference.run(stream.extend(1).sum("x"))


def test_decimals_stay_decimals() -> None:
    assert value(sq.sum("x"), [Decimal("1.50"), Decimal("2.25")]) == Decimal("3.75")


def test_user_aggregate_is_not_given_nulls() -> None:
    spread = sq.aggregate_fn(
        "x",
        init=lambda: (0, 0),
        accumulate=lambda state, t, x: (state[0] + x, state[1] + t),
        deaccumulate=lambda state, t, x: (state[0] - x, state[1] - t),
        result=lambda state: state[0] * 10 + state[1],
        dtype=pl.Int64,
    )
    assert value(spread, [1, None, 2]) == 32


def test_user_aggregate_that_fails_is_named() -> None:
    broken = sq.aggregate_fn(
        "x",
        init=lambda: (0,),
        accumulate=lambda state, t, x: 1 / 0,
        deaccumulate=lambda state, t, x: state,
        result=lambda state: 0,
        dtype=pl.Int64,
    )
    with pytest.raises(UserFunctionError, match="division by zero"):
        value(broken, [1])


# -- snapshots and groups -----------------------------------------------------------------------------------


def test_equal_neighbours_are_not_merged_and_nothing_alive_gives_no_row() -> None:
    stream = sq.from_frame({"t": [1, 2, 9], "u": [2, 3, 10], "x": [1, 1, 1]}, start="t", end="u")
    assert [(row.start, row.end) for row in reference.run(stream.count())] == [(1, 2), (2, 3), (9, 10)]


def test_change_points_are_per_key() -> None:
    stream = sq.from_frame({"t": [1, 3], "u": [9, 5], "k": ["a", "b"]}, start="t", end="u")
    counted = stream.group_aggregate("k", n=sq.count())
    assert reference.run(counted) == [Row(1, 9, {"k": "a", "n": 1}), Row(3, 5, {"k": "b", "n": 1})]


def test_null_and_nan_are_keys_like_any_other() -> None:
    stream = sq.from_frame({"t": [1] * 4, "k": [None, None, NAN, NAN]}, start="t")
    counts = [row.payload["n"] for row in reference.run(stream.group_aggregate("k", n=sq.count()))]
    assert counts == [2, 2]


def test_first_and_last_go_by_start_then_payload() -> None:
    frame = pl.DataFrame({"t": [2, 1, 2], "u": [9, 9, 9], "x": [5, 7, 6]})
    chosen = sq.from_frame(frame, start="t", end="u").aggregate(a=sq.first("x"), b=sq.last("x"))
    assert reference.run(chosen)[-1].payload == {"a": 7, "b": 6}


def test_distinct_gives_maximal_parts() -> None:
    frame = pl.DataFrame({"t": [1, 2, 5, 8], "u": [3, 5, 6, 9], "x": ["a"] * 4})
    rows = reference.run(sq.from_frame(frame, start="t", end="u").distinct())
    assert [(row.start, row.end) for row in rows] == [(1, 6), (8, 9)]


# -- relational ---------------------------------------------------------------------------------------------


def test_relational_data_has_one_snapshot_and_no_times() -> None:
    counted = sq.from_frame({"k": ["a", "b", "a"]}).group_aggregate("k", n=sq.count())
    assert sorted(reference.frame(counted).rows()) == [("a", 2), ("b", 1)]


def test_aggregate_of_an_empty_relation_gives_no_row() -> None:
    assert reference.frame(sq.from_frame({"x": pl.Series([], dtype=pl.Int64)}).count()).shape == (0, 1)


def test_union_of_relational_and_temporal_data_is_temporal() -> None:
    united = sq.from_frame({"x": [1]}).union(sq.from_frame({"t": [5], "x": [2]}, start="t"))
    assert reference.frame(united).rows() == [(None, None, 1), (5, 6, 2)]
