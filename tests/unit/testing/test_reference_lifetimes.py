"""The reference follows the worked statements on lifetimes and windows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, TimeOverflowError, UnboundedResultError
from squill.stream import Stream
from squill.testing import Row, from_rows, reference
from squill.time import INFINITY


def points(*times: int) -> Stream:
    return sq.from_frame({"t": list(times)}, start="t")


def intervals(*lifetimes: tuple[int, int | None]) -> Stream:
    rows = [Row(start, INFINITY if end is None else end, {"x": "a"}) for start, end in lifetimes]
    return from_rows(rows, {"x": pl.String})


def lifetimes(query: Stream) -> list[tuple[int, int]]:
    return [(row.start, row.end) for row in reference.run(query)]


# -- sources ------------------------------------------------------------------------------------------------


def test_empty_lifetimes_are_dropped() -> None:
    assert lifetimes(intervals((3, 3), (3, 4))) == [(3, 4)]


def test_null_ends_are_endless() -> None:
    assert lifetimes(intervals((3, None))) == [(3, INFINITY)]


def test_end_before_start_is_refused() -> None:
    with pytest.raises(InputError, match="ends before it starts"):
        reference.run(intervals((3, 2)))


def test_null_start_is_refused() -> None:
    with pytest.raises(InputError, match="no start"):
        reference.run(sq.from_frame({"t": [1, None]}, start="t"))


# -- lifetimes ----------------------------------------------------------------------------------------------


def test_durations_of_zero_and_less_remove_the_event_when_they_come_from_an_expression() -> None:
    stream = sq.from_frame({"t": [1, 2, 3], "n": [0, -1, 4]}, start="t")
    assert lifetimes(stream.with_duration(sq.col("n"))) == [(3, 7)]


def test_alter_lifetime_moves_the_start_then_sets_the_duration() -> None:
    assert lifetimes(points(7, 12).alter_lifetime(start=sq.start() // 5 * 5, duration=3)) == [
        (5, 8),
        (10, 13),
    ]


def test_expressions_over_times_count_nanoseconds() -> None:
    stream = sq.from_frame(pl.DataFrame({"t": pl.Series([-3, 1001]).cast(pl.Datetime("ns"))}), start="t")
    assert lifetimes(stream.alter_lifetime(start=sq.start(), duration="5ns")) == [(-3, 2), (1001, 1006)]
    since = sq.start() - pl.lit(-10).cast(pl.Datetime("ns"))
    assert lifetimes(stream.with_duration(since)) == [(-3, 4), (1001, 2012)]


def test_alter_lifetime_refuses_a_start_that_loses_the_order_of_time() -> None:
    with pytest.raises(InputError, match="below an earlier event's"):
        reference.run(points(1, 2).alter_lifetime(start=sq.start() * -1, duration=1))


def test_shift_moves_both_ends_and_keeps_infinity() -> None:
    assert lifetimes(intervals((1, 5), (2, None)).shift(-3)) == [(-2, 2), (-1, INFINITY)]


def test_extend_removes_what_ends_before_it_starts() -> None:
    assert lifetimes(intervals((1, 5), (1, 8), (2, None)).extend(-4)) == [(1, 4), (2, INFINITY)]


def test_clip_takes_the_earlier_end() -> None:
    assert lifetimes(intervals((1, 5), (1, 50), (2, None)).clip(10)) == [(1, 5), (1, 11), (2, 12)]


def test_point_at_end_leaves_endless_events_out() -> None:
    assert lifetimes(intervals((1, 5), (2, None)).point_at_end()) == [(5, 6)]


def test_chop_cuts_strictly_inside() -> None:
    assert lifetimes(intervals((0, 20), (-3, 4)).chop(10)) == [(-3, 0), (0, 4), (0, 10), (10, 20)]


def test_chop_with_an_offset() -> None:
    assert lifetimes(intervals((0, 9)).chop(5, 2)) == [(0, 2), (2, 7), (7, 9)]


def test_chop_of_an_endless_event_is_unbounded() -> None:
    with pytest.raises(UnboundedResultError, match="infinitely many"):
        reference.run(intervals((0, None)).chop(10))


def test_a_time_that_leaves_its_range_is_an_error() -> None:
    with pytest.raises(TimeOverflowError):
        reference.run(points(2**62).shift(2**62))


# -- stitch -------------------------------------------------------------------------------------------------

STITCHED: dict[str, tuple[Sequence[tuple[int, int | None]], list[tuple[int, int]]]] = {
    "a chain": ([(1, 2), (2, 3), (3, 5)], [(1, 5)]),
    "a gap": ([(1, 2), (3, 4)], [(1, 2), (3, 4)]),
    "no overlap merges": ([(1, 4), (2, 6)], [(1, 4), (2, 6)]),
    "the earliest start goes on": ([(1, 5), (3, 5), (5, 9)], [(1, 9), (3, 5)]),
    "more starts than ends": ([(1, 5), (5, 7), (5, 9)], [(1, 7), (5, 9)]),
    "two of each": ([(1, 5), (2, 5), (5, 7), (5, 9)], [(1, 7), (2, 9)]),
    "beside a longer equal one": ([(1, 2), (2, 3), (1, 6)], [(1, 3), (1, 6)]),
    "into an endless one": ([(1, 2), (2, None)], [(1, INFINITY)]),
}


@pytest.mark.parametrize("name", STITCHED)
def test_stitch_merges_what_touches_as_a_multiset(name: str) -> None:
    given, expected = STITCHED[name]
    assert lifetimes(intervals(*given).stitch()) == expected


def test_stitch_undoes_chop() -> None:
    whole = intervals((1, 33), (40, 41))
    assert lifetimes(whole.chop(7).stitch()) == lifetimes(whole)


def test_stitch_keeps_payloads_apart() -> None:
    rows = [Row(1, 2, {"x": "a"}), Row(2, 3, {"x": "b"})]
    assert reference.run(from_rows(rows, {"x": pl.String}).stitch()) == rows


# -- quantize and cast_time ---------------------------------------------------------------------------------


def test_quantize_covers_every_window_the_lifetime_overlaps() -> None:
    assert lifetimes(intervals((3, 12)).quantize(10, 10)) == [(0, 20)]
    assert lifetimes(intervals((10, 20)).quantize(10, 10)) == [(10, 20)]


def test_quantize_of_windows_longer_than_their_period() -> None:
    assert lifetimes(intervals((3, 12)).quantize(20, 10)) == [(0, 20)]


def test_quantize_with_progress_snaps_starts_to_the_finer_grid() -> None:
    assert lifetimes(intervals((7, 8), (7, None)).quantize(10, 10, progress=5)) == [(5, 10), (5, INFINITY)]


def test_quantize_of_negative_times() -> None:
    assert lifetimes(intervals((-3, -2)).quantize(10, 10)) == [(-10, 0)]


def test_cast_time_to_finer_ticks_multiplies_both_ends() -> None:
    stream = sq.from_frame({"t": pl.Series([5]).cast(pl.Datetime("ms"))}, start="t")
    assert lifetimes(stream.cast_time("us")) == [(5000, 6000)]


def test_cast_time_to_coarser_ticks_floors_starts_and_raises_ends() -> None:
    day = dt.timedelta(days=1)
    times = [dt.datetime(1970, 1, 1, 5), dt.datetime(1969, 12, 31, 5)]
    frame = pl.DataFrame({"t": times, "u": [times[0] + day, times[1]]})
    assert lifetimes(sq.from_frame(frame, start="t", end="u").cast_time("d")) == [(0, 2)]
    assert lifetimes(sq.from_frame(frame, start="t").cast_time("d")) == [(-1, 0), (0, 1)]


# -- windows ------------------------------------------------------------------------------------------------


def test_closed_left_counts_an_event_at_the_boundary_in_the_window_that_begins_there() -> None:
    assert lifetimes(points(10).tumbling_window(10)) == [(20, 30)]


def test_closed_right_counts_an_event_at_the_boundary_in_the_window_that_ends_there() -> None:
    assert lifetimes(points(10).tumbling_window(10, closed="right")) == [(10, 20)]


def test_hopping_window_reports_at_each_hop_until_the_event_leaves() -> None:
    assert lifetimes(points(3).hopping_window(20, 10)) == [(10, 30)]
    assert lifetimes(points(3).hopping_window(15, 10)) == [(10, 20)]


def test_hops_wider_than_windows_leave_events_out() -> None:
    assert lifetimes(points(3, 8, 12).hopping_window(5, 10)) == [(10, 20)]


def test_count_window_lives_until_the_nth_later_event() -> None:
    assert lifetimes(points(1, 3, 7).count_window(2)) == [(1, 7), (3, INFINITY), (7, INFINITY)]


def test_count_window_pushes_out_at_its_own_instant_by_payload() -> None:
    stream = sq.from_frame({"t": [1, 1, 5], "x": [2, None, 0]}, start="t")
    assert reference.run(stream.count_window(1)) == [Row(1, 5, {"x": 2}), Row(5, INFINITY, {"x": 0})]


def test_session_ends_timeout_after_its_last_event_and_that_instant_opens_a_new_one() -> None:
    assert lifetimes(points(0, 4, 9).session_window(5)) == [(0, 9), (4, 9), (9, 14)]


def test_final_sessions_are_points_at_their_end() -> None:
    sessions = points(0, 4, 20).session_window(5, rows="final").count()
    assert reference.run(sessions) == [Row(9, 10, {"count": 2}), Row(25, 26, {"count": 1})]


def test_fresh_session_may_last_to_the_multiple_at_or_after_its_start_and_max_duration() -> None:
    assert lifetimes(points(11, 25, 39, 50).session_window(20, 30)) == [
        (11, 60),
        (25, 60),
        (39, 60),
        (50, 60),
    ]
    assert lifetimes(points(30, 45, 59).session_window(20, 30)) == [(30, 60), (45, 60), (59, 60)]


def test_session_cut_while_active_goes_on_to_the_next_multiple() -> None:
    assert lifetimes(points(0, 9, 18, 21, 30).session_window(10, 20)) == [
        (0, 20), (9, 20), (18, 20), (21, 40), (30, 40),
    ]  # fmt: skip


def test_sessions_are_per_key() -> None:
    stream = sq.from_frame({"t": [0, 3], "k": ["a", "b"]}, start="t")
    assert lifetimes(stream.group_apply("k", lambda g: g.session_window(5))) == [(0, 5), (3, 8)]


def test_per_window_repeats_an_unchanged_answer_per_hop() -> None:
    windows = reference.frame(points(3).hopping_window(20, 10).count().per_window())
    assert windows.rows() == [(-10, 10, 1), (0, 20, 1)]
    assert windows.columns == ["window_start", "window_end", "count"]
