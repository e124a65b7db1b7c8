"""Lifetime operators, each over events whose ends are known and over edges."""

from __future__ import annotations

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, TimeOverflowError, UnboundedResultError
from squill.testing import assert_same_events, reference
from tests.unit.engine.operators.rows import edges, intervals, points, rows


def test_shift_moves_both_ends() -> None:
    assert rows(intervals((1, 5), (2, None)).shift(-3)) == [(-2, 2), (-1, None)]


def test_shift_moves_edges() -> None:
    assert rows(edges((1, 5)).shift(3)) == [(4, 8, "a")]


def test_shift_out_of_range_is_refused() -> None:
    with pytest.raises(TimeOverflowError, match=r"shift\(by=10\).*leaves the 64-bit range"):
        points(2**63 - 5).shift(10).collect()


def test_extend_delays_end_edges() -> None:
    assert rows(edges((1, 3), (2, None)).extend(10)) == [(1, 13, "a"), (2, None, "a")]


def test_extend_backwards_removes_short_events() -> None:
    assert rows(intervals((1, 3), (2, 9)).extend(-2)) == [(2, 7)]


def test_extend_backwards_cancels_the_start_edge_of_a_short_event() -> None:
    assert rows(edges((1, 3), (2, 9), (4, 6)).extend(-2)) == [(2, 7, "a")]


def test_clip_ends_start_edges_at_the_limit() -> None:
    assert rows(edges((1, None), (2, 4), (3, 100)).clip(5)) == [(1, 6, "a"), (2, 4, "a"), (3, 8, "a")]


def test_clip_beyond_the_end_of_time_leaves_events_that_end() -> None:
    late = 2**63 - 9
    assert rows(intervals((late, late + 4)).clip(100)) == [(late, late + 4)]


def test_clip_beyond_the_end_of_time_refuses_endless_events() -> None:
    with pytest.raises(TimeOverflowError, match=r"clip.*leaves the 64-bit range"):
        sq.from_frame({"t": [2**63 - 9]}, start="t", lifetime="open").clip(100).collect()


def test_clip_of_an_end_exactly_at_the_limit_ends_once() -> None:
    assert rows(edges((1, 6)).clip(5)) == [(1, 6, "a")]


def test_point_at_end_leaves_endless_events_out() -> None:
    assert rows(intervals((1, 5), (2, None), (3, 4)).point_at_end()) == [(4, 5), (5, 6)]


def test_point_at_end_of_edges() -> None:
    assert rows(edges((1, 5), (2, 3)).point_at_end()) == [(3, 4, "a"), (5, 6, "a")]


def test_chop_splits_strictly_inside() -> None:
    assert rows(intervals((0, 10), (5, 25)).chop(10)) == [(0, 10), (5, 10), (10, 20), (20, 25)]


def test_chop_splits_edges_at_the_grid() -> None:
    assert rows(edges((5, 25), (10, 20)).chop(10)) == [
        (5, 10, "a"), (10, 20, "a"), (10, 20, "a"), (20, 25, "a"),
    ]  # fmt: skip


def test_chop_with_an_offset_before_zero() -> None:
    assert rows(intervals((-7, 2)).chop(5, 1)) == [(-7, -4), (-4, 1), (1, 2)]


@pytest.mark.parametrize("stream", [intervals((1, None)), edges((1, None))])
def test_chop_of_an_endless_event_is_refused(stream: sq.Stream) -> None:
    with pytest.raises(UnboundedResultError, match="chop: 1 events never end"):
        stream.chop(10).collect()


def test_stitch_merges_touching_equal_events() -> None:
    assert rows(intervals((1, 3), (3, 5), (6, 7), x=["a", "a", "a"]).stitch()) == [(1, 5, "a"), (6, 7, "a")]


def test_stitch_lets_the_earliest_starts_go_on() -> None:
    stream = intervals((1, 5), (2, 5), (5, 9), x=["a", "a", "a"])
    assert rows(stream.stitch()) == [(1, 9, "a"), (2, 5, "a")]


def test_stitch_keeps_different_payloads_apart() -> None:
    assert rows(intervals((1, 3), (3, 5), x=[1.5, None]).stitch()) == [(1, 3, 1.5), (3, 5, None)]


def test_stitch_of_list_payloads() -> None:
    assert rows(intervals((1, 3), (3, 5), x=[[1, 2], [1, 2]]).stitch()) == [(1, 5, [1, 2])]


def test_stitch_undoes_chop() -> None:
    stream = intervals((1, 14), (3, 30), x=["a", "b"])
    assert rows(stream.chop(4).stitch()) == rows(stream)


def test_quantize_snaps_starts_down_and_ends_up() -> None:
    assert rows(intervals((3, 4), (9, 11)).quantize(10, 10)) == [(0, 10), (0, 20)]


def test_quantize_of_edges_delays_ends() -> None:
    assert rows(edges((3, 4), (9, 11)).quantize(10, 10)) == [(0, 10, "a"), (0, 20, "a")]


def test_quantize_with_progress_starts_on_the_finer_grid() -> None:
    assert rows(points(3, 7).quantize(10, 10, 0, 5)) == [(0, 10), (5, 10)]


def test_wait_for_ends_makes_ends_known() -> None:
    stream = edges((1, 9), (2, 3)).wait_for_ends().with_columns(e=sq.end())
    assert rows(stream) == [(1, 9, "a", 9), (2, 3, "a", 3)]


def test_wait_for_ends_lets_endless_events_out_at_completion() -> None:
    assert rows(edges((1, None), (2, 3)).wait_for_ends()) == [(1, None, "a"), (2, 3, "a")]


def test_cast_time_to_a_coarser_unit_floors_and_raises() -> None:
    frame = pl.DataFrame({"t": [1999], "u": [2001]}).cast(pl.Datetime("us"))
    answer = sq.from_frame(frame, start="t", end="u").cast_time("ms").collect()
    assert answer.cast(pl.Int64).rows() == [(1, 3)]
    assert answer["start"].dtype == pl.Datetime("ms")


def test_cast_time_to_a_finer_unit_multiplies() -> None:
    frame = pl.DataFrame({"t": [2]}).cast(pl.Datetime("ms"))
    assert sq.from_frame(frame, start="t").cast_time("us").collect().cast(pl.Int64).rows() == [(2000, 3000)]


def test_with_duration_of_an_expression_removes_what_has_no_length() -> None:
    stream = points(1, 2, 3, 4, d=[5, 0, -1, None]).with_duration(sq.col("d"))
    assert rows(stream) == [(1, 6, 5), (4, None, None)]


def test_alter_lifetime_must_be_monotone() -> None:
    with pytest.raises(InputError, match="alter_lifetime: the new start is not monotone"):
        points(1, 2).alter_lifetime(start=sq.start() * -1, duration=1).collect()


def test_alter_lifetime_sets_start_and_duration() -> None:
    assert rows(points(3, 8).alter_lifetime(start=sq.start() // 2, duration=4)) == [(1, 5), (4, 8)]


def test_a_constant_start_moves_every_event_there() -> None:
    query = points(1, 2, 5).alter_lifetime(start=pl.lit(7, dtype=pl.Int64), duration=2)
    assert rows(query) == [(7, 9), (7, 9), (7, 9)]


def test_a_new_start_below_the_clock_is_not_monotone() -> None:
    events = sq.from_events([sq.punctuation(10), sq.point(12, x=1)])
    with pytest.raises(InputError, match="not monotone"):
        events.alter_lifetime(start=-sq.start(), duration=1).collect()


def test_a_null_duration_may_hide_any_value() -> None:
    days = sq.from_frame({"t": pl.Series([0, 1], dtype=pl.Date), "n": [5, 48]}, start="t")
    hours = pl.when(sq.col("n") > 10).then(pl.duration(hours=sq.col("n"), time_unit="us"))
    assert days.with_duration(hours).collect()["end"].to_physical().to_list() == [None, 3]


@pytest.mark.parametrize("offset", [0, 3, -(2**62) - 7])
def test_chop_with_a_grid_that_leaves_the_range_of_times(offset: int) -> None:
    spans = intervals((2**62, 2**62 + 5), (1, 2**62 + 9))
    for query in (spans.chop(2**62, offset), spans.stitch().chop(2**62, offset)):
        assert_same_events(query.collect(batch_rows=1), reference.frame(query))


def test_an_endless_event_with_a_fine_grid_is_refused_before_its_pieces_fill_the_memory() -> None:
    stream = intervals((0, None), (10**15, 10**15 + 1), x=[1, 2])
    with pytest.raises(UnboundedResultError, match="chop: a step of time from"):
        stream.chop(1).collect()
