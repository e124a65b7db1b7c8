"""Filters and projections move into scans where that changes no answer."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError
from squill.plan.node import walk
from squill.plan.nodes import Aggregate, FileSource, Where
from squill.plan.rewrite import rewrite
from squill.stream import Stream


@pytest.fixture
def clicks(tmp_path: Path) -> Stream:
    frame = pl.DataFrame({"t": [1, 2, 3], "k": [1, 2, 1], "s": ["1", "2", "x"], "x": [0.5, 1.5, 2.5]})
    frame.write_parquet(tmp_path / "clicks.parquet")
    return sq.scan(tmp_path / "clicks.parquet", start="t")


def scan_of(stream: Stream) -> FileSource:
    found = [node for node in walk(rewrite(stream.plan)) if isinstance(node, FileSource)]
    assert len(found) == 1
    return found[0]


def filters_left(stream: Stream) -> int:
    return sum(isinstance(node, Where) for node in walk(rewrite(stream.plan)))


def test_a_plan_without_anything_to_push_is_the_same_object(clicks: Stream) -> None:
    plan = clicks.with_duration(5).plan
    assert rewrite(plan) is plan
    other = sq.from_frame({"t": [1], "u": [2], "x": [1]}, start="t", end="u").where(sq.col("x") > 1).select("x").plan
    assert rewrite(other) is other


def test_a_filter_on_a_scan_moves_into_it(clicks: Stream) -> None:
    query = clicks.where(sq.col("k") == 1)
    assert filters_left(query) == 0
    assert scan_of(query).predicate is not None
    assert query.collect()["s"].to_list() == ["1", "x"]


def test_filters_that_cannot_fail_move_together(clicks: Stream) -> None:
    query = clicks.where(sq.col("k") == 1).where(sq.col("x") > 1)
    assert filters_left(query) == 0
    assert query.collect()["s"].to_list() == ["x"]


def test_a_cast_behind_a_filter_does_not_meet_the_rows_it_dropped(clicks: Stream) -> None:
    query = clicks.where(sq.col("s") != "x").where(sq.col("s").cast(pl.Int64) > 1)
    assert filters_left(query) == 1
    assert query.collect()["k"].to_list() == [2]


def test_decimals_behind_a_filter_do_not_overflow_on_the_rows_it_dropped(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [1, 2], "d": ["1.5", "9" * 30]}).with_columns(pl.col("d").cast(pl.Decimal(38, 2)))
    frame.write_parquet(tmp_path / "decimals.parquet")
    query = sq.scan(tmp_path / "decimals.parquet").where(sq.col("k") < 2).where(sq.col("d") * sq.col("d") > 1)
    assert filters_left(query) == 1
    assert query.collect()["k"].to_list() == [1]


def test_a_filter_on_the_start_stays(clicks: Stream) -> None:
    assert filters_left(clicks.where(sq.start() > 1)) == 1


def test_a_filter_above_a_window_stays(clicks: Stream) -> None:
    assert filters_left(clicks.tumbling_window(5).where(sq.col("k") == 1)) == 1


def scans_of(stream: Stream) -> list[FileSource]:
    return [node for node in walk(rewrite(stream.plan)) if isinstance(node, FileSource)]


@pytest.fixture
def views(tmp_path: Path) -> Stream:
    frame = pl.DataFrame({"x": [9.0, 1.5], "s": ["v", "w"], "t": [2, 9], "k": [1, 2]})
    frame.write_parquet(tmp_path / "views.parquet")
    return sq.scan(tmp_path / "views.parquet", start="t")


def test_a_filter_above_a_union_moves_into_every_scan(clicks: Stream, views: Stream) -> None:
    query = clicks.union(views).where(sq.col("k") == 1)
    assert filters_left(query) == 0
    assert all(scan.predicate is not None for scan in scans_of(query))
    assert query.collect(sort=True)["s"].to_list() == ["1", "v", "x"]


def test_where_one_side_is_no_scan_the_filter_stands_on_it(clicks: Stream) -> None:
    rows = {"t": [5, 6], "u": [6, 7], "k": [1, 2], "s": ["y", "z"], "x": [0.0, 0.0]}
    query = clicks.union(sq.from_frame(rows, start="t", end="u")).where(sq.col("k") == 1)
    assert filters_left(query) == 1
    assert scan_of(query).predicate is not None
    assert query.collect(sort=True)["s"].to_list() == ["1", "x", "y"]


def test_unions_in_unions_let_the_filter_through(clicks: Stream, views: Stream) -> None:
    query = clicks.union(views.union(views.with_columns(k=sq.col("k") + 1))).where(sq.col("k") == 2)
    assert query.collect(sort=True)["s"].to_list() == ["2", "v", "w"]
    first, second = scans_of(query)
    assert first.predicate is not None
    assert second.predicate is None  # read once, for two inputs


def test_a_filter_stays_above_a_union_that_others_read(clicks: Stream, views: Stream) -> None:
    both = clicks.union(views)
    query = both.where(sq.col("k") == 1).union(both)
    assert filters_left(query) == 1
    assert all(scan.predicate is None for scan in scans_of(query))
    assert query.collect().height == 8


def test_a_filter_stays_above_a_union_without_scans() -> None:
    frame = sq.from_frame({"t": [1], "x": [1]}, start="t")
    plan = frame.union(frame.shift(2)).where(sq.col("x") > 1).plan
    assert rewrite(plan) is plan


def test_a_filter_passes_columns_that_a_select_hands_on(clicks: Stream) -> None:
    query = clicks.select("k", "s", y=sq.col("x") * 2).where(sq.col("k") == 1)
    assert filters_left(query) == 0
    assert query.collect()["y"].to_list() == [1.0, 5.0]


@pytest.mark.parametrize("changed", [{"k": sq.col("k") + 1}, {"k": sq.col("x").cast(pl.Int64)}])
def test_a_filter_on_a_column_that_a_select_makes_stays(clicks: Stream, changed: dict[str, pl.Expr]) -> None:
    query = clicks.with_columns(**changed).where(sq.col("k") == 2)
    assert filters_left(query) == 1
    assert query.collect()["s"].to_list() == (["1", "x"] if "+" in str(changed["k"]) else ["x"])


def test_columns_of_another_name_do_not_carry_the_filter(clicks: Stream) -> None:
    query = clicks.rename({"k": "old", "x": "k"}).where(sq.col("k") > 2)
    assert filters_left(query) == 1
    assert query.collect()["old"].to_list() == [1]


def test_a_scan_that_is_used_twice_is_read_once(clicks: Stream) -> None:
    query = clicks.where(sq.col("k") == 1).union(clicks.where(sq.col("k") == 2))
    assert scan_of(query).predicate is None
    assert query.collect().height == 3


def test_only_the_columns_in_use_are_read(clicks: Stream) -> None:
    query = clicks.with_columns(y=sq.col("x") * 2, z=sq.col("s")).where(sq.col("y") > 1)
    counted = query.group_apply("k", lambda g: g.tumbling_window(5).aggregate(n=sq.sum("y")))
    assert scan_of(counted).read == ("k", "x")
    assert counted.collect(sort=True).rows() == [(5, 10, 1, 5.0), (5, 10, 2, 3.0)]


def test_a_column_used_only_by_the_pushed_filter_is_not_read(clicks: Stream) -> None:
    assert scan_of(clicks.where(sq.col("k") == 1).select("x")).read == ("x",)


def test_only_the_columns_in_use_are_read_below_a_union(clicks: Stream, views: Stream) -> None:
    query = clicks.union(views).group_apply("k", lambda g: g.with_duration(5).sum("x"))
    assert [scan.read for scan in scans_of(query)] == [("k", "x"), ("x", "k")]
    frames = sq.from_frame(clicks.collect().drop("end"), start="start").union(
        sq.from_frame(views.collect().drop("end"), start="start").select("k", "s", "x")
    )
    same = frames.group_apply("k", lambda g: g.with_duration(5).sum("x"))
    assert query.collect(sort=True).equals(same.collect(sort=True))


@pytest.mark.parametrize("whole_first", [False, True])
def test_an_input_of_a_union_that_needs_everything_is_cut_down_above(
    clicks: Stream, views: Stream, *, whole_first: bool
) -> None:
    whole = views.distinct()
    query = (whole.union(clicks) if whole_first else clicks.union(whole)).sum("x")
    reads = [scan.read for scan in scans_of(query)]
    assert reads == ([None, ("x",)] if whole_first else [("x",), None])
    assert query.collect().rows() == [(1, 2, 0.5), (2, 3, 10.5), (3, 4, 2.5), (9, 10, 1.5)]


def test_an_input_of_a_union_that_others_read_too_is_cut_down_above(clicks: Stream) -> None:
    counted = clicks.union(clicks.where(sq.col("s") != "x")).select("x").union(clicks.select("x"))
    assert scan_of(counted).read == ("s", "x")
    assert sorted(counted.collect()["x"].to_list()) == [0.5, 0.5, 0.5, 1.5, 1.5, 1.5, 2.5, 2.5]


def test_a_union_of_nothing_but_times(clicks: Stream, views: Stream) -> None:
    query = clicks.union(views).count()
    assert [scan.read for scan in scans_of(query)] == [(), ()]
    assert query.collect().rows() == [(1, 2, 1), (2, 3, 2), (3, 4, 1), (9, 10, 1)]


def test_aggregates_that_nobody_uses_are_not_computed(clicks: Stream) -> None:
    both = clicks.aggregate(n=sq.count(), top=sq.max("x"), ratio=sq.sum("x") / sq.count(), last=sq.last("s"))
    query = both.select("ratio")
    assert scan_of(query).read == ("x",)
    assert query.collect().rows() == both.collect().select("start", "end", "ratio").rows()
    (aggregate,) = [node for node in walk(rewrite(query.plan)) if isinstance(node, Aggregate)]
    assert [call.kind for call in aggregate.calls] == ["count", "sum"]


def test_rows_of_an_aggregate_stay_when_none_of_its_columns_is_used(clicks: Stream) -> None:
    sums = clicks.group_apply("k", lambda g: g.with_duration(2).sum("x"))
    assert sums.count().collect().rows() == [(1, 2, 1), (2, 3, 2), (3, 4, 2), (4, 5, 1)]
    assert clicks.sum("x").count().collect().rows() == [(1, 2, 1), (2, 3, 1), (3, 4, 1)]


@pytest.mark.parametrize("ordered", ["first", "last", "collect_list", "top_k", "count_window", "distinct", "stitch"])
def test_operators_that_see_the_whole_payload_read_it(clicks: Stream, ordered: str) -> None:
    open_clicks = clicks.with_duration(None)
    queries = {
        "first": lambda: open_clicks.aggregate(n=sq.first("k")),
        "last": lambda: open_clicks.aggregate(n=sq.last("k")),
        "collect_list": lambda: open_clicks.aggregate(n=sq.collect_list("k")),
        "top_k": lambda: open_clicks.aggregate(n=sq.top_k("k", 1)),
        "count_window": lambda: clicks.count_window(1).aggregate(n=sq.count()),
        "distinct": lambda: clicks.distinct().aggregate(n=sq.count()),
        "stitch": lambda: clicks.stitch().aggregate(n=sq.count()),
    }
    assert scan_of(queries[ordered]()).read is None


def test_times_and_promises_are_read_though_nothing_above_uses_them(tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": [1, 2], "u": [3, 4], "k": ["a", "b"]})
    frame.write_parquet(tmp_path / "a.parquet")
    stream = sq.scan(tmp_path / "a.parquet", start="t", end="u", unique="k").count()
    assert scan_of(stream).read == ()
    assert stream.collect().rows() == [(1, 2, 1), (2, 3, 2), (3, 4, 1)]


POINTS = pl.DataFrame({"t": [3, 1, 2, 1], "u": [4, 2, 3, 1], "k": [1, 2, 1, 1], "s": ["x", "1", "2", "3"]})


def test_a_filter_on_a_frame_moves_into_it() -> None:
    query = sq.from_frame(POINTS, start="t").where(sq.col("k") == 1)
    assert filters_left(query) == 0
    assert query.collect().select("start", "s").rows() == [(1, "3"), (2, "2"), (3, "x")]
    assert 'only [(col("k")) == (dyn int: 1)]' in query.explain("rewritten")


def test_filters_on_a_frame_see_only_what_the_ones_before_kept() -> None:
    query = sq.from_frame(POINTS, start="t").where(sq.col("s") != "x").where(sq.col("s").cast(pl.Int64) > 1)
    assert filters_left(query) == 1
    assert query.collect()["s"].to_list() == ["3", "2"]


def test_a_filter_on_a_frame_of_intervals_or_relational_rows_stays() -> None:
    # Rows of an empty lifetime are no events, and the filter must not meet them.
    assert filters_left(sq.from_frame(POINTS, start="t", end="u").where(sq.col("k") == 1)) == 1
    assert filters_left(sq.from_frame(POINTS).where(sq.col("k") == 1)) == 1


def test_a_column_that_fails_on_a_row_of_a_frame_fails_though_a_filter_would_drop_the_row() -> None:
    points = sq.from_frame(POINTS, start="t")
    assert filters_left(points.with_columns(n=sq.col("k") + 1).where(sq.col("k") == 2)) == 0
    cast = points.with_columns(n=sq.col("s").cast(pl.Int64)).where(sq.col("k") == 2)
    assert filters_left(cast) == 1
    with pytest.raises(InputError, match="conversion"):
        cast.collect()


def test_a_frame_that_is_used_twice_keeps_all_its_rows() -> None:
    points = sq.from_frame(POINTS, start="t")
    query = points.where(sq.col("k") == 1).union(points.where(sq.col("k") == 2))
    assert filters_left(query) == 2
    assert query.collect().height == 4


def test_explain_shows_what_was_pushed(clicks: Stream) -> None:
    text = clicks.where(sq.col("k") == 1).select("x").explain("rewritten")
    assert 'read=[x], only [(col("k")) == (dyn int: 1)]' in text


def test_detect_reads_the_columns_that_its_pattern_names(clicks: Stream) -> None:
    p = sq.pattern
    query = clicks.group_apply("k", lambda g: g.detect(p.one(sq.col("x") > 1, n=lambda n: n + 1).with_registers(n=0)))
    assert scan_of(query).read == ("k", "x")
    # Here the rest of the payload decides about the order.
    assert scan_of(clicks.detect(p.any(sq.col("x") > 1, last="k"))).read is None
    assert scan_of(clicks.detect(sq.col("x") > 1, order_by="k")).read is None
