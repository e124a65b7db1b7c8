"""Aggregates, groups, distinct and union over snapshots."""

from __future__ import annotations

import polars as pl
import pytest

import squill as sq
from squill.errors import NumericOverflowError, UserFunctionError
from tests.unit.engine.operators.rows import edges, intervals, points, rows


def test_equal_neighbours_are_not_merged() -> None:
    assert rows(intervals((1, 3), (3, 5)).count()) == [(1, 3, 1), (3, 5, 1)]


def test_nothing_alive_gives_no_row() -> None:
    assert rows(intervals((1, 3), (6, 7)).count()) == [(1, 3, 1), (6, 7, 1)]


def test_null_is_a_key_like_any_other() -> None:
    query = points(1, 1, k=[None, "a"]).group_aggregate("k", n=sq.count())
    assert rows(query) == [(1, 2, None, 1), (1, 2, "a", 1)]


def test_filter_inside_an_aggregate_keeps_the_snapshot() -> None:
    query = intervals((1, 5), (2, 5), x=[1, 9]).aggregate(n=sq.count(where=sq.col("x") > 5))
    assert rows(query) == [(1, 2, 0), (2, 5, 1)]


def test_arithmetic_over_aggregates() -> None:
    query = intervals((1, 5), (1, 5), x=[1, 4]).aggregate(mean=sq.sum("x") / sq.count())
    assert rows(query) == [(1, 5, 2.5)]


def test_passing_overflow_inside_an_instant_is_no_error() -> None:
    big = 2**62
    query = intervals((1, 3), (1, 5), (3, 5), x=[big, big - 1, big]).sum("x")
    assert rows(query) == [(1, 3, 2 * big - 1), (3, 5, 2 * big - 1)]


def test_overflow_of_a_snapshot_is_refused() -> None:
    with pytest.raises(NumericOverflowError, match=r"aggregate sum\(x\): the sum leaves the 64-bit range"):
        intervals((1, 3), (2, 3), x=[2**62, 2**62]).sum("x").collect()


def test_special_floats_leave_with_their_rows() -> None:
    nan = float("nan")
    query = intervals((1, 3), (1, 5), x=[nan, 2.0]).sum("x")
    first, second = rows(query)
    assert str(first) == "(1, 3, nan)"
    assert second == (3, 5, 2.0)


def test_float_sum_is_exact_after_a_large_value_left() -> None:
    query = intervals((1, 3), (1, 5), (1, 5), x=[1e17, 0.1, 0.2]).sum("x")
    assert rows(query)[-1] == (3, 5, pytest.approx(0.3, rel=1e-15))


def test_sum_of_all_nulls_is_zero_and_mean_is_null() -> None:
    stream = sq.from_frame(pl.DataFrame({"t": [1], "x": [None]}, schema={"t": pl.Int64, "x": pl.Int64}), start="t")
    assert rows(stream.aggregate(s=sq.sum("x"), m=sq.mean("x"))) == [(1, 2, 0, None)]


def test_sum_of_durations_stays_a_duration() -> None:
    frame = pl.DataFrame({"t": [1, 1], "d": [5, 7]}).with_columns(pl.col("d").cast(pl.Duration("ms")))
    assert sq.from_frame(frame, start="t").sum("d").collect()["d"].dtype == pl.Duration("ms")


def test_unsigned_values_above_the_signed_range_overflow() -> None:
    frame = pl.DataFrame({"t": [1], "x": pl.Series([2**63], dtype=pl.UInt64)})
    with pytest.raises(NumericOverflowError):
        sq.from_frame(frame, start="t").sum("x").collect()


def test_aggregate_of_an_aggregate_sees_its_edges() -> None:
    query = intervals((1, 5), (2, 4), k=["a", "b"]).group_aggregate("k", n=sq.count()).count()
    assert rows(query) == [(1, 2, 1), (2, 4, 2), (4, 5, 1)]


def test_nested_groups_compose_their_keys() -> None:
    query = points(1, 1, a=[1, 1], b=["x", "y"]).group_apply("a", lambda g: g.group_apply("b", lambda h: h.count()))
    assert rows(query) == [(1, 2, 1, "x", 1), (1, 2, 1, "y", 1)]


def test_computed_key_has_a_name() -> None:
    query = points(1, 1, 1, x=[10, 21, 30]).group_aggregate(n=sq.count(), h=sq.col("x") % 10)
    assert rows(query) == [(1, 2, 0, 2), (1, 2, 1, 1)]


def test_distinct_covers_the_union_of_equal_lifetimes() -> None:
    assert rows(edges((1, 5), (3, 9), (9, 10), x=["a", "a", "a"]).distinct()) == [(1, 10, "a")]


def test_distinct_leaves_gaps() -> None:
    assert rows(intervals((1, 3), (2, 3), (5, 6), x=["a", "a", "a"]).distinct()) == [(1, 3, "a"), (5, 6, "a")]


def test_union_keeps_equal_rows() -> None:
    stream = points(1, 3, x=[1, 2])
    assert rows(stream.union(stream.shift(1))) == [(1, 2, 1), (2, 3, 1), (3, 4, 2), (4, 5, 2)]


def test_select_many_gives_each_item_the_lifetime() -> None:
    query = intervals((1, 5), (2, 3), x=[[1, 2], []]).select_many("x")
    assert rows(query) == [(1, 5, 1), (1, 5, 2)]


def test_select_many_with_a_function() -> None:
    query = points(1, 2, x=[2, 0]).select_many(lambda row: [{"y": i} for i in range(row["x"])], schema={"y": pl.Int64})
    assert rows(query) == [(1, 2, 0), (1, 2, 1)]


def test_map_batches_error_names_the_function_and_a_row() -> None:
    def explode(frame: pl.DataFrame) -> pl.DataFrame:
        raise RuntimeError("boom")

    with pytest.raises(UserFunctionError, match=r"map_batches\(explode\): it raised RuntimeError: boom; the first row"):
        points(1, x=[7]).map_batches(explode).collect()


def test_map_batches_must_keep_the_number_of_rows() -> None:
    with pytest.raises(UserFunctionError, match="returned 1 rows for 2"):
        points(1, 2, x=[7, 8]).map_batches(lambda frame: frame.head(1)).collect()


def test_relational_overflow_is_refused_too() -> None:
    with pytest.raises(NumericOverflowError):
        sq.from_frame({"x": [2**62, 2**62]}).sum("x").collect()


def test_relational_results_have_no_times() -> None:
    answer = sq.from_frame({"k": ["a", "a"], "x": [1, 2]}).group_aggregate("k", s=sq.sum("x")).collect()
    assert answer.rows() == [("a", 3)]
    assert answer.columns == ["k", "s"]


def test_key_that_empties_twice_in_one_batch_is_released_once() -> None:
    query = intervals((1, 2), (3, 4), (5, 6), (9, 10), k=["a", "a", "a", "b"]).group_aggregate("k", n=sq.count())
    expected = [(1, 2, "a", 1), (3, 4, "a", 1), (5, 6, "a", 1), (9, 10, "b", 1)]
    assert rows(query) == expected
    assert rows(query.distinct()) == expected
    assert rows(query.stitch()) == expected


def test_an_enum_is_ordered_by_its_categories_everywhere() -> None:
    sizes = pl.Series(["small", "large", "small"], dtype=pl.Enum(["small", "large"]))
    query = points(1, 1, 1, x=sizes).aggregate(
        high=sq.max("x"), last=sq.last("x"), top=sq.top_k("x", 1), all=sq.collect_list("x")
    )
    assert rows(query) == [(1, 2, "large", "large", [{"rank": 1, "x": "large"}], ["small", "small", "large"])]


def test_a_union_of_windows_has_no_start_and_end() -> None:
    windows = points(1, 7).tumbling_window(5).count().per_window()
    assert windows.union(windows).collect().columns == ["window_start", "window_end", "count"]


def test_128_bit_integers_may_be_null() -> None:
    x = pl.Series([2**100, None, 1], dtype=pl.Int128)
    query = points(1, 1, 1, x=x).aggregate(low=sq.min("x"), n=sq.count_not_null("x"), d=sq.count_distinct("x"))
    assert rows(query) == [(1, 2, 1, 2, 2)]
