"""Joins, existence and clipping by another stream: small cases whose answers can be read off."""

from __future__ import annotations

import polars as pl
import pytest

import squill as sq
from squill.engine.operators.edge_join import EdgeJoin
from squill.engine.operators.exists import ExistsByCount, ExistsByKey, exists_operator
from squill.engine.operators.exists_intervals import ExistsByIntervals
from squill.engine.operators.interval_join import IntervalJoin
from squill.engine.operators.join import join_operator
from squill.plan.events import Punctuation
from squill.plan.nodes import Exists, Join
from tests.unit.engine.operators.rows import edges, intervals, points, rows

LEFT = intervals((1, 10), (2, 4), k=["a", "b"], x=[1, 2])
RIGHT = intervals((3, 6), (3, 8), (10, 12), k=["a", "b", "a"], y=[10, 20, 30])


# -- join ---------------------------------------------------------------------------------------------------


def test_pairs_live_where_both_do() -> None:
    assert rows(LEFT.join(RIGHT, on="k")) == [(3, 4, "b", 2, 20), (3, 6, "a", 1, 10)]


def test_touching_lifetimes_do_not_meet() -> None:
    assert rows(intervals((1, 5), k=[1]).join(intervals((5, 9), k=[1]), on="k")) == []


def test_edges_give_the_same_pairs_as_intervals() -> None:
    told = [((1, 5), "a"), ((2, None), "b"), ((5, 9), "a"), ((6, 7), "b")]
    lifetimes, values = [lifetime for lifetime, _ in told], [value for _, value in told]
    by_edges, by_intervals = edges(*lifetimes, x=values), intervals(*lifetimes, x=values)
    other = intervals((0, 3), (4, 8), (5, 6), x=["a", "b", "a"])
    expected = rows(by_intervals.join(other, on="x"))
    assert rows(by_edges.join(other, on="x")) == expected
    assert rows(other.join(by_edges, on="x")) == expected
    assert len(expected) == 4


def test_an_end_and_a_start_at_one_instant_make_no_pair_of_edges() -> None:
    told = edges((1, 5)).join(edges((5, 9)), on="x").collect_events()
    assert [event for event in told if not isinstance(event, Punctuation)] == []


def test_cross_pairs_all_that_is_alive_together() -> None:
    assert rows(intervals((0, 4), x=[1]).join(intervals((1, 2), (3, 9), y=[1, 2]), how="cross")) == [
        (1, 2, 1, 1), (3, 4, 1, 2),
    ]  # fmt: skip


def test_condition_sees_both_sides_by_their_output_names() -> None:
    left, right = intervals((0, 9), k=[1], x=[5]), intervals((1, 3), (2, 4), k=[1, 1], x=[4, 6])
    assert rows(left.join(right, on="k", where=sq.col("x_right") > sq.col("x"))) == [(2, 4, 1, 5, 6)]


def test_null_keys_match_nothing_but_a_null_group_is_a_group() -> None:
    stream = intervals((0, 5), (1, 6), k=pl.Series([None, None], dtype=pl.Int64), x=[1, 2])
    assert rows(stream.join(stream, on="k")) == []
    inside = stream.group_apply("k", lambda g: g.where(sq.col("x") == 1).join(g.where(sq.col("x") == 2)))
    assert rows(inside) == [(1, 5, None, 1, 2)]


def test_keys_of_several_columns_and_of_different_names() -> None:
    right = RIGHT.rename({"k": "key"}).with_columns(z=1)
    joined = LEFT.with_columns(z=1).join(right, left_on=["k", "z"], right_on=["key", "z"])
    assert joined.schema.names == ("k", "x", "z", "key", "y", "z_right")
    assert rows(joined)[0] == (3, 4, "b", 2, 1, "b", 20, 1)


def test_full_join_shows_each_side_alone_where_it_is_alone() -> None:
    assert rows(LEFT.join(RIGHT, on="k", how="full")) == [
        (1, 3, "a", 1, None), (2, 3, "b", 2, None), (3, 4, "b", 2, 20), (3, 6, "a", 1, 10),
        (4, 8, "b", None, 20), (6, 10, "a", 1, None), (10, 12, "a", None, 30),
    ]  # fmt: skip


def test_a_stream_used_twice_is_computed_once() -> None:
    calls = []

    def counted(frame: pl.DataFrame) -> pl.DataFrame:
        calls.append(frame.height)
        return frame

    shared = LEFT.map_batches(counted, schema=dict(LEFT.schema))
    calls.clear()
    answer = shared.share(lambda s: s.join(s, on="k")).collect()
    assert (answer.height, sum(calls)) == (2, 2)


@pytest.mark.parametrize(
    ("left", "right", "variant"),
    [(LEFT, RIGHT, IntervalJoin), (LEFT.session_window(3), RIGHT, EdgeJoin), (RIGHT, LEFT.stitch(), EdgeJoin)],
)
def test_variant_follows_from_what_is_known_of_ends(left: sq.Stream, right: sq.Stream, variant: type) -> None:
    node = left.join(right, on="k").plan
    assert isinstance(node, Join)
    assert type(join_operator(node)) is variant
    assert node.properties.ends_known == (variant is IntervalJoin)


# -- existence ----------------------------------------------------------------------------------------------


def test_existence_shows_maximal_parts_once() -> None:
    left = intervals((0, 20), k=[1])
    right = intervals((2, 5), (4, 7), (7, 9), (12, 15), k=[1, 1, 1, 1])
    assert rows(left.where_exists(right, on="k")) == [(2, 9, 1), (12, 15, 1)]
    assert rows(left.where_not_exists(right, on="k")) == [(0, 2, 1), (9, 12, 1), (15, 20, 1)]


def test_existence_with_a_condition_counts_per_left_row() -> None:
    left = intervals((0, 10), (0, 10), k=[1, 1], x=[1, 5])
    right = intervals((2, 4), (3, 6), k=[1, 1], y=[3, 9])
    assert rows(left.where_exists(right, on="k", where=sq.col("y") > sq.col("x"))) == [(2, 6, 1, 1), (3, 6, 1, 5)]


def test_null_keys_exist_nowhere() -> None:
    left = intervals((0, 5), k=pl.Series([None], dtype=pl.Int64))
    assert rows(left.where_not_exists(left, on="k")) == [(0, 5, None)]
    assert rows(left.where_exists(left, on="k")) == []


def test_existence_variant_follows_from_the_condition_and_from_what_is_known_of_ends() -> None:
    edges = sq.from_events([sq.start_edge(1, k="a", y=2)])
    for right, condition, variant in (
        (RIGHT, None, ExistsByIntervals),
        (edges, None, ExistsByKey),
        (RIGHT, sq.col("y") > 1, ExistsByCount),
    ):
        node = LEFT.where_exists(right, on="k", where=condition).plan
        assert isinstance(node, Exists)
        assert type(exists_operator(node)) is variant


def test_parts_of_one_key_end_where_its_coverage_begins_though_that_is_told_later() -> None:
    # The first left row ends before the right row begins, the second inside it, the third is cut in two.
    left = intervals((0, 3), (1, 6), (2, 20), (7, 9), k=[1, 1, 1, 1])
    right = intervals((4, 8), (8, 10), (4, 5), k=[1, 1, 1])
    assert rows(left.where_not_exists(right, on="k")) == [(0, 3, 1), (1, 4, 1), (2, 4, 1), (10, 20, 1)]
    assert rows(left.where_exists(right, on="k")) == [(4, 6, 1), (4, 10, 1), (7, 9, 1)]


def test_parts_reach_consumers_of_edges_too() -> None:
    left = intervals((0, 8), (2, 30), k=[1, 1])
    right = intervals((4, 5), (20, 25), k=[1, 1])
    counts = left.where_not_exists(right, on="k").aggregate(n=sq.count())
    assert rows(counts) == [(0, 2, 1), (2, 4, 2), (5, 8, 2), (8, 20, 1), (25, 30, 1)]


# -- clip ---------------------------------------------------------------------------------------------------


def test_the_next_start_clips_and_what_is_alive_does_not() -> None:
    left = intervals((5, 20), (7, None), k=[1, 1])
    right = intervals((1, 30), (5, 6), (9, 10), (11, 12), k=[1, 1, 1, 1])
    assert rows(left.clip(right, on="k")) == [(5, 9, 1), (7, 9, 1)]


def test_clipping_by_oneself_makes_a_history() -> None:
    log = points(1, 5, 5, 8, k=["a", "a", "b", "a"])
    open_ended = log.with_duration(None)
    assert rows(open_ended.clip(open_ended, on="k")) == [(1, 5, "a"), (5, None, "b"), (5, 8, "a"), (8, None, "a")]


def test_without_keys_every_start_clips() -> None:
    assert rows(intervals((1, 9), x=[1]).clip(points(4, k=["z"]))) == [(1, 4, 1)]
