"""Windows are lifetime changes."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import squill as sq
from squill.errors import TimeOverflowError
from tests.unit.engine.operators.rows import points, rows


def test_tumbling_window_reports_at_the_window_end() -> None:
    assert rows(points(0, 9, 10).tumbling_window(10).count()) == [(10, 20, 2), (20, 30, 1)]


def test_closed_right_takes_the_event_on_the_boundary_into_the_window_that_ends_there() -> None:
    assert rows(points(0, 9, 10).tumbling_window(10, closed="right").count()) == [(0, 10, 1), (10, 20, 2)]


def test_hopping_window_before_1970() -> None:
    assert rows(points(-1, 0).hopping_window(4, 2).count()) == [(0, 2, 1), (2, 4, 2), (4, 6, 1)]


def test_event_between_windows_vanishes() -> None:
    assert rows(points(1, 6).hopping_window(3, 10).count()) == []
    assert rows(points(8).hopping_window(3, 10).count()) == [(10, 20, 1)]


def test_size_need_not_be_a_multiple_of_hop() -> None:
    assert rows(points(0, 1).hopping_window(3, 2)) == [(2, 4), (2, 6)]


def test_window_out_of_range_is_refused() -> None:
    with pytest.raises(TimeOverflowError, match="hopping_window"):
        points(2**63 - 3).hopping_window(10, 10).collect()


def test_count_window_keeps_the_last_n_per_key() -> None:
    stream = points(1, 2, 3, 4, k=["a", "b", "a", "a"]).group_apply("k", lambda g: g.count_window(2))
    assert rows(stream) == [(1, 4, "a"), (2, None, "b"), (3, None, "a"), (4, None, "a")]


def test_count_window_event_pushed_out_at_its_own_instant_vanishes() -> None:
    assert rows(points(1, 1, 1, x=[3, 1, 2]).count_window(2)) == [(1, None, 2), (1, None, 3)]


def test_session_ends_one_timeout_after_its_last_event() -> None:
    assert rows(points(1, 3, 10, x=[1, 2, 3]).session_window(5)) == [(1, 8, 1), (3, 8, 2), (10, 15, 3)]


def test_event_exactly_at_the_timeout_opens_a_new_session() -> None:
    assert rows(points(1, 6).session_window(5)) == [(1, 6), (6, 11)]


def test_session_is_cut_on_the_grid_of_its_longest_duration() -> None:
    query = points(11, 25, 40, 55, 65).session_window(20, 30).count()
    assert rows(query)[-2:] == [(55, 60, 4), (65, 85, 1)]


def test_final_session_rows_are_points_at_its_end() -> None:
    query = points(1, 3, 10).session_window(5, rows="final").count()
    assert rows(query) == [(8, 9, 2), (15, 16, 1)]


def test_sessions_of_different_keys_are_apart() -> None:
    query = points(1, 2, 5, k=["a", "b", "a"]).group_apply("k", lambda g: g.session_window(3, rows="final").count())
    assert rows(query) == [(4, 5, "a", 1), (5, 6, "b", 1), (8, 9, "a", 1)]


def test_per_window_repeats_unchanged_answers() -> None:
    query = points(0).hopping_window(6, 2).count().per_window()
    assert query.collect().rows() == [(-4, 2, 1), (-2, 4, 1), (0, 6, 1)]


TIMES = [-17, -7, -5, -5, -1, 0, 0, 3, 9, 10, 11, 29]


def windows_of_ours(frame: pl.DataFrame, size: int, hop: int) -> list[tuple[int, int, int]]:
    stream = sq.from_frame(frame, start="t")
    query = stream.group_apply("k", lambda g: g.hopping_window(size, hop).aggregate(n=sq.count())).per_window()
    return sorted(query.select("k", "window_start", "n").collect().rows())


@pytest.mark.parametrize(("size", "hop"), [(5, 5), (10, 5), (12, 4)])
def test_per_window_equals_polars_own_windows(size: int, hop: int) -> None:
    frame = pl.DataFrame({"t": TIMES, "k": [i % 2 for i in range(len(TIMES))]})
    # Polars begins with the first event's own window; an early event makes it show the windows before that one.
    early = pl.DataFrame({"t": [-120, -120], "k": [0, 1]})
    theirs = (
        pl.concat([early, frame])
        .sort("t")
        .group_by_dynamic("t", every=f"{hop}i", period=f"{size}i", closed="left", group_by="k", start_by="window")
        .agg(n=pl.len().cast(pl.Int64))
        .filter(pl.col("t") > -120)
    )
    assert windows_of_ours(frame, size, hop) == sorted(theirs.select("k", "t", "n").rows())


@pytest.mark.parametrize(("size", "hop"), [(5, 5), (10, 5), (12, 4), (7, 3), (3, 7)])
def test_per_window_equals_duckdb(size: int, hop: int) -> None:
    # Window ends lie on the grid of the hop; where hops do not fit the size, starts do not.
    frame = pl.DataFrame({"t": TIMES, "k": [i % 2 for i in range(len(TIMES))]})
    theirs = duckdb.execute(
        f"""
        SELECT k, w - {size} AS window_start, count(*) AS n
        FROM frame JOIN (SELECT unnest(generate_series(-420, 420, {hop})) AS w) ON t >= w - {size} AND t < w
        GROUP BY k, w
        """
    ).fetchall()
    assert windows_of_ours(frame, size, hop) == sorted(theirs)


def test_per_window_equals_duckdb_on_datetimes_before_1970() -> None:
    times = pl.Series("t", [-3_600_000, -1, 0, 59_999, 60_000]).cast(pl.Datetime("ms"))
    frame = pl.DataFrame([times])
    query = sq.from_frame(frame, start="t").tumbling_window("1m").count().per_window()
    theirs = duckdb.execute("SELECT time_bucket(INTERVAL 1 MINUTE, t) AS w, count(*) FROM frame GROUP BY w").fetchall()
    assert query.select("window_start", "count").collect().rows() == sorted(theirs)
