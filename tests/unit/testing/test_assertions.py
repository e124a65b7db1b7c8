"""The shared assertion tells equal answers from different ones."""

from __future__ import annotations

import math

import polars as pl
import pytest

import squill as sq
from squill.plan.events import Event
from squill.testing import Row, assert_same_events, from_rows, random_stream, reference
from squill.time import INFINITY


def test_order_does_not_matter() -> None:
    rows = [Row(1, 2, {"x": 1}), Row(1, 2, {"x": None})]
    assert_same_events(rows, rows[::-1])


def test_multiplicity_matters() -> None:
    row = Row(1, 2, {"x": 1})
    with pytest.raises(AssertionError, match="1 of 2 rows only left, 0 of 1 only right"):
        assert_same_events([row, row], [row])


def test_floats_may_differ_a_little_and_nan_is_nan() -> None:
    left = [Row(1, 2, {"x": 1.0}), Row(1, 2, {"x": math.nan}), Row(1, 2, {"x": [0.1 + 0.2]})]
    right = [Row(1, 2, {"x": [0.3]}), Row(1, 2, {"x": math.nan}), Row(1, 2, {"x": 1.0 + 1e-12})]
    assert_same_events(left, right)


@pytest.mark.parametrize("other", [1.001, math.inf, math.nan, None])
def test_floats_that_differ_are_told_apart(other: float | None) -> None:
    with pytest.raises(AssertionError):
        assert_same_events([Row(1, 2, {"x": 1.0})], [Row(1, 2, {"x": other})])


def test_scale_allows_for_what_was_added_up() -> None:
    left, right = [Row(1, 2, {"x": 0.0})], [Row(1, 2, {"x": 1e-6})]
    assert_same_events(left, right, scale=1e4)


def test_types_matter_between_frames() -> None:
    frame = pl.DataFrame({"start": [1], "end": [2], "x": [1]})
    with pytest.raises(AssertionError, match="the columns differ"):
        assert_same_events(frame, frame.with_columns(pl.col("x").cast(pl.Int32)))


def test_edges_are_folded() -> None:
    events: list[Event] = [sq.start_edge(1, x=1), sq.start_edge(2, x=2), sq.end_edge(5, 1, x=1)]
    assert_same_events(events, [Row(1, 5, {"x": 1}), Row(2, INFINITY, {"x": 2})])


def test_frames_without_times_are_compared_by_payload() -> None:
    windows = sq.from_frame({"t": [1]}, start="t").tumbling_window(5).count().per_window()
    assert_same_events(reference.frame(windows), reference.run(windows))


def test_long_differences_are_cut() -> None:
    rows = [Row(t, t + 1, {}) for t in range(30)]
    with pytest.raises(AssertionError, match="… and 20 more"):
        assert_same_events(rows, [])


def test_random_streams_are_the_same_for_the_same_seed() -> None:
    assert_same_events(reference.run(random_stream(7)), reference.run(random_stream(7)))
    assert reference.run(random_stream(7)) != reference.run(random_stream(8))


@pytest.mark.parametrize("kind", ["points", "intervals", "endless", "edges", "mixed"])
def test_random_streams_of_every_kind(kind: str) -> None:
    assert len(reference.run(random_stream(1, rows=30, kind=kind))) == 30


def test_rows_become_a_stream_and_back() -> None:
    rows = [Row(1, 5, {"x": 1.5}), Row(2, INFINITY, {"x": None})]
    assert reference.run(from_rows(rows, {"x": pl.Float64})) == rows


def test_the_hour_that_a_clock_shows_twice_is_two_hours() -> None:
    times = pl.Series("x", [0, 3_600_000_000], pl.Int64) + 1_729_989_000_000_000
    frame = pl.DataFrame([pl.Series("t", [1, 1]), times.cast(pl.Datetime("us", "Europe/Zurich"))])
    stream = sq.from_frame(frame, start="t")
    assert [str(value)[:16] for value in frame["x"].to_list()] == ["2024-10-27 02:30"] * 2
    assert_same_events(reference.frame(stream.distinct().aggregate(n=sq.count_distinct("x"))), [Row(1, 2, {"n": 2})])
    assert_same_events(reference.frame(stream.aggregate(x=sq.max("x"))), [Row(1, 2, {"x": frame["x"][1]})])
    with pytest.raises(AssertionError):
        assert_same_events(stream, [Row(1, 2, {"x": frame["x"][0]})] * 2)
