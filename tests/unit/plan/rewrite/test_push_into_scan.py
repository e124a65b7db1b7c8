"""Filters and projections move into scans where that changes no answer."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.node import walk
from squill.plan.nodes import FileSource, Where
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
    other = sq.from_frame({"t": [1], "x": [1]}, start="t").where(sq.col("x") > 1).select("x").plan
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


def test_a_filter_on_the_start_stays(clicks: Stream) -> None:
    assert filters_left(clicks.where(sq.start() > 1)) == 1


def test_a_filter_above_a_window_stays(clicks: Stream) -> None:
    assert filters_left(clicks.tumbling_window(5).where(sq.col("k") == 1)) == 1


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


@pytest.mark.parametrize("ordered", ["first", "last", "collect_list", "top_k", "count_window", "distinct"])
def test_operators_that_see_the_whole_payload_read_it(clicks: Stream, ordered: str) -> None:
    open_clicks = clicks.with_duration(None)
    queries = {
        "first": lambda: open_clicks.aggregate(n=sq.first("k")),
        "last": lambda: open_clicks.aggregate(n=sq.last("k")),
        "collect_list": lambda: open_clicks.aggregate(n=sq.collect_list("k")),
        "top_k": lambda: open_clicks.aggregate(n=sq.top_k("k", 1)),
        "count_window": lambda: clicks.count_window(1).aggregate(n=sq.count()),
        "distinct": lambda: clicks.distinct().aggregate(n=sq.count()),
    }
    assert scan_of(queries[ordered]()).read is None


def test_times_and_promises_are_read_though_nothing_above_uses_them(tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": [1, 2], "u": [3, 4], "k": ["a", "b"]})
    frame.write_parquet(tmp_path / "a.parquet")
    stream = sq.scan(tmp_path / "a.parquet", start="t", end="u", unique="k").count()
    assert scan_of(stream).read == ()
    assert stream.collect().rows() == [(1, 2, 1), (2, 3, 2), (3, 4, 1)]


def test_explain_shows_what_was_pushed(clicks: Stream) -> None:
    text = clicks.where(sq.col("k") == 1).select("x").explain("rewritten")
    assert 'read=[x], only [(col("k")) == (dyn int: 1)]' in text
